"""`patchgym tasks mine REPO --out FILE`: tasks out of a repository's own history."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
from rich.console import Console

from patchgym.datasets.images import DISK_MIB, MEMORY_MIB, PIDS, TaskImages
from patchgym.datasets.mining import (
    Layout,
    Mined,
    MiningConfig,
    Plan,
    Progress,
    Store,
    document,
    mine,
    plan,
    take_over,
    undone,
    write,
)
from patchgym.datasets.recipes import Recipe, load_recipes
from patchgym.trainer.cli.number_words import positive
from patchgym.trainer.errors import UserError
from patchgym.trainer.stopping import watch_signals

from .mine_view import MiningView, print_mined


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    add = arguments.add_argument
    add("repository", type=Path, metavar="REPO", help="a local git repository; it is only read")
    add("--out", type=Path, required=True, metavar="FILE", help="tasks' file, added to if there")
    add("--since", metavar="WHEN", help="date (2024-05-31), commit, or last: the last run's newest")
    add("--limit", type=positive, metavar="N", help="look at the newest N commits")
    add("--max-tasks", type=positive, metavar="N", help="end with the newest N tasks")
    add(
        "--jobs", type=positive, default=os.cpu_count() or 1, metavar="N",
        help="sandboxes at once (default: this machine's cores)",
    )  # fmt: skip
    add(
        "--repeats", type=positive, default=MiningConfig().repeats, metavar="N",
        help="runs without and with the fix each (default %(default)s)",
    )  # fmt: skip
    add("--issues", type=Path, metavar="FILE", help="JSON: number of an issue to its text")
    add("--recipes", type=Path, metavar="FILE", help="how environments are made; goes first")
    add("--subproject", default="", metavar="DIR", help="stay in this folder of the repository")
    add("--tests", action="append", default=[], metavar="GLOB", help="more paths that hold tests")
    add("--repo", type=_name, metavar="OWNER/NAME", help="its name (default: by its remote)")
    add("--json", action="store_true", help="the report on stdout")


@dataclass(slots=True)
class _Run:
    """One mining run."""

    known: argparse.Namespace
    config: MiningConfig
    recipes: tuple[Recipe, ...]
    store: Store
    view: MiningView
    planned: Plan | None = None
    progress: Progress = field(default_factory=Progress)
    stopped: bool = False


def run(known: argparse.Namespace) -> int:
    """Entry point; exit code 1 when there are no tasks, 2 when the machine is at fault."""
    config = _config(known)
    recipes = (*(load_recipes(known.recipes) if known.recipes else ()), *load_recipes())
    if known.out.is_dir() or not known.out.absolute().parent.is_dir():
        raise UserError(f"--out {known.out}: name a file in a folder that is there")
    started = time.monotonic()
    with Store(known.out) as store:
        run_ = _Run(known, config, recipes, store, MiningView(Console(stderr=True)))
        mined = _session(run_, started)
        return _finish(run_, mined)


def _session(run_: _Run, started: float) -> Mined | None:
    """Mine; whatever ends it early, keep the tasks so far and say how to go on."""
    mined = None
    try:
        with run_.view:
            anyio.run(_supervise, run_)
    finally:
        if run_.planned is not None:
            seconds = time.monotonic() - started
            mined = write(run_.planned, run_.progress, run_.store, run_.config, seconds)
            if not run_.progress.finished:
                run_.view.say(
                    f"{len(run_.progress.decisions)} of {len(run_.planned.candidates)} candidates "
                    f"are decided in {run_.store.folder}: the same command goes on from there"
                )
    return mined


async def _supervise(run_: _Run) -> None:
    """The work beside its signal watch; both end together."""

    def stopping() -> None:
        run_.stopped = True
        run_.view.say("stopping (again to leave at once)")

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, stopping)
            group.start_soon(run_.view.watch)
            await _work(run_)
        group.cancel_scope.cancel()


async def _work(run_: _Run) -> None:
    from patchgym.datasets.mining.environments import BuiltEnvironments, built_key
    from patchgym.sandbox import BuildAccess, ImageStore, Pool, SandboxSpec, ensure_base

    key = built_key(run_.recipes)
    run_.planned = await plan(run_.known.repository, run_.store, run_.config, key, run_.view)
    take_over(run_.planned, run_.progress, run_.view)
    if not undone(run_.planned, run_.progress, run_.config):
        run_.progress.finished = True
        return
    tag = await ensure_base()
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    # writable: which of the candidates' environments install something is not known yet
    spec = SandboxSpec(
        image=tag, writable_root=True, memory_mib=MEMORY_MIB, disk_mib=DISK_MIB, pids=PIDS
    )
    async with (
        ImageStore(access=access) as images,
        Pool(spec, size=run_.config.jobs) as pool,
    ):
        run_.view.check = pool.engines[0].ping
        await mine(
            run_.planned,
            pool,
            TaskImages(images),
            BuiltEnvironments(images, run_.recipes),
            run_.store,
            run_.config,
            run_.view,
            run_.progress,
        )


def _finish(run_: _Run, mined: Mined | None) -> int:
    held = run_.store.count()
    if mined is not None:
        if run_.known.json:
            print(json.dumps({**document(mined), "file_tasks": held}, indent=2))
        else:
            print_mined(mined, run_.known.out, held, Console())
    if run_.stopped or mined is None:
        return 130
    return _exit_code(mined, held)


def _exit_code(mined: Mined, held: int) -> int:
    if mined.undecided:
        last = list(mined.undecided.values())[-1]
        return _complain(
            2,
            f"the machine failed {len(mined.undecided)} candidates: {last}: "
            "the same command tries them again",
        )
    if mined.only_environments_fail:
        reason = next(
            each.dropped.detail
            for each in mined.decisions
            if each.dropped is not None and each.dropped.reason == "environment"
        )
        return _complain(2, f"no candidate has an environment: give --recipes: {reason}")
    if not held:
        return _complain(1, f"no tasks in {len(mined.decisions)} commits: the table says why")
    return 0


def _complain(code: int, line: str) -> int:
    print(f"patchgym: {line}", file=sys.stderr)
    return code


def _config(known: argparse.Namespace) -> MiningConfig:
    subproject = known.subproject.strip("/")
    if ".." in subproject.split("/"):
        raise UserError(f"--subproject {known.subproject}: name a folder inside the repository")
    return MiningConfig(
        since=known.since,
        limit=known.limit,
        max_tasks=known.max_tasks,
        jobs=known.jobs,
        repeats=known.repeats,
        layout=Layout(tests=tuple(known.tests), subproject=subproject),
        name=known.repo,
        issues=_issues(known.issues) if known.issues else {},
    )


def _issues(path: Path) -> Mapping[str, str]:
    advice = 'write {"12": "text of the issue", ...}'
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"--issues {path}: {reason}: {advice}") from error
    except ValueError as error:
        raise UserError(f"--issues {path}: not JSON ({error}): {advice}") from error
    if not isinstance(read, dict) or not all(isinstance(text, str) for text in read.values()):
        raise UserError(f"--issues {path}: not texts by number: {advice}")
    return {number.lstrip("#"): text for number, text in read.items()}


def _name(word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", word):
        raise argparse.ArgumentTypeError(f"{word}: write OWNER/NAME")
    return word
