"""`patchgym tasks inject REPO --out FILE --count N`: tasks by bugs put into a library."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from rich.console import Console

from patchgym.datasets.task import Task, dump_tasks
from patchgym.trainer.cli.number_words import positive, share
from patchgym.trainer.errors import UserError
from patchgym.trainer.stopping import watch_signals

from .inject_view import InjectView, print_injection

if TYPE_CHECKING:
    from patchgym.datasets.injection import Injection, InjectionConfig, Origin


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    add = arguments.add_argument
    add("source", type=Path, metavar="REPO", help="git repository, folder or sdist; only read")
    add("--out", type=Path, required=True, metavar="FILE", help="JSONL file of tasks to write")
    add("--count", type=positive, required=True, metavar="N", help="tasks to make")
    add("--seed", type=int, default=0, metavar="S", help="chooses the bugs (default 0)")
    add(
        "--jobs", type=positive, default=os.cpu_count() or 1, metavar="N",
        help="sandboxes at once (default: this machine's cores)",
    )  # fmt: skip
    add(
        "--max-share", type=share, default=0.5, metavar="X",
        help="of the tests that run a bug, how many may fail at most (default 0.5)",
    )  # fmt: skip
    add(
        "--combine", type=share, default=0.2, metavar="X",
        help="share of the mutants with two bugs (default 0.2)",
    )  # fmt: skip
    add("--kinds", metavar="A,B", help="kinds of bugs (default: all); see docs/injection.md")
    add("--commit", default="HEAD", metavar="REV", help="of a git repository (default HEAD)")
    add("--recipes", type=Path, metavar="FILE", help="how environments are built")
    add("--repo", default="", metavar="OWNER/NAME", help="the name that a recipe has for it")
    add("--subproject", default="", metavar="DIR", help="folder of the project's manifests")
    add("--repeats", type=positive, default=2, metavar="N", help="validation runs (default 2)")
    add("--json", action="store_true", help="the report on stdout")


@dataclass(slots=True)
class Ending:
    """How it came out."""

    injection: Injection | None = None
    stopped: bool = False


def run(known: argparse.Namespace) -> int:
    """Entry point; exit code 1 when fewer tasks than asked for could be made."""
    if importlib.util.find_spec("libcst") is None:
        raise UserError("this needs libcst: run pip install 'patchgym[tasks]'")
    if known.out.is_dir() or not known.out.absolute().parent.is_dir():
        raise UserError(f"--out {known.out}: name a file in a folder that is there")
    config = _config(known)
    view, ending = InjectView(Console(stderr=True), config.count), Ending()
    try:
        with view:
            anyio.run(_supervise, known, config, view, ending)
    finally:
        if ending.injection is None and any(_work(known.out).glob("*/records.jsonl")):
            view.say(f"what was tried is kept in {_work(known.out)}: the same command goes on")
    if ending.injection is None:
        return 130
    return _finish(known, config, ending.injection)


def _work(out: Path) -> Path:
    return out.with_name(f"{out.name}.repos")


def _config(known: argparse.Namespace) -> InjectionConfig:
    from patchgym.datasets.injection import MUTATIONS, InjectionConfig, Limits

    kinds = tuple(MUTATIONS)
    if known.kinds is not None:
        kinds = tuple(known.kinds.split(","))
        for kind in kinds:
            if kind not in MUTATIONS:
                raise UserError(f"--kinds: no kind {kind!r}{_nearest(kind, MUTATIONS)}")
    return InjectionConfig(
        count=known.count,
        seed=known.seed,
        jobs=known.jobs,
        kinds=kinds,
        combine=known.combine,
        limits=Limits(max_share=known.max_share),
        repeats=known.repeats,
    )


def _nearest(word: str, names: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"; did you mean {near[0]}?" if near else f"; there is {', '.join(names)}"


async def _supervise(
    known: argparse.Namespace, config: InjectionConfig, view: InjectView, ending: Ending
) -> None:
    """The work beside its signal watch; both end together."""

    def stopping() -> None:
        ending.stopped = True
        view.say("stopping (again to leave at once)")

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, stopping)
            ending.injection = await _inject(known, config, view)
        group.cancel_scope.cancel()


async def _inject(
    known: argparse.Namespace, config: InjectionConfig, view: InjectView
) -> Injection:
    from patchgym.datasets.injection import environment_for, inject, open_origin
    from patchgym.datasets.recipes import load_recipes
    from patchgym.sandbox import BuildAccess, ImageStore

    recipes = load_recipes(known.recipes) if known.recipes else ()
    work = _work(known.out)

    def copied() -> Origin:
        return open_origin(known.source, work / "source.git", commit=known.commit)

    view.stage("copying the code")
    origin = await anyio.to_thread.run_sync(copied)
    access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access) as store:
        view.stage("finding an environment")
        environment = await environment_for(
            origin, store, recipes=recipes, repo=known.repo, subproject=known.subproject
        )
        return await inject(origin, environment, work, store, config, view)


def _finish(known: argparse.Namespace, config: InjectionConfig, injection: Injection) -> int:
    """Write the tasks, show the report, and say by the exit code whether there are enough."""
    repository = f"{_work(known.out).name}/source.git"
    tasks: list[Task] = [replace(task, repository=repository) for task in injection.tasks]
    if tasks:
        dump_tasks(tasks, known.out)
    if known.json:
        document = {**injection.statistics.document(), "reason": injection.reason}
        print(json.dumps(document, indent=2))
    else:
        print_injection(injection, Console())
    if len(tasks) == config.count:
        return 0
    print(
        f"patchgym: {len(tasks)} tasks instead of {config.count}: {injection.reason}",
        file=sys.stderr,
    )
    return 1
