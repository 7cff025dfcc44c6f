"""`patchgym evaluate --policy`: rollouts of every task, fresh verdicts, one report."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from rich.console import Console

from patchgym.datasets.task import Task
from patchgym.rewards.evaluation import Scores, compare, read_scores, scores_of, write_report
from patchgym.trainer.agent_evaluation import (
    AgentEvaluation,
    AgentSettings,
    EvaluationFolder,
    report_of,
    resolve_settings,
    settled,
)
from patchgym.trainer.agent_evaluation.folder import prepare_folder
from patchgym.trainer.agent_evaluation.report import Prices
from patchgym.trainer.config import SandboxSection, ScoringSection
from patchgym.trainer.errors import UserError
from patchgym.trainer.formats import write_predictions
from patchgym.trainer.policies import (
    NO_CLUSTER,
    OpenedPolicy,
    PolicyOptions,
    open_policy,
    parse_policy,
)
from patchgym.trainer.run_folder import locked
from patchgym.trainer.stopping import watch_signals

from .evaluate_arguments import read_tasks
from .evaluate_policy_table import print_policy_report
from .evaluate_policy_view import PolicyView
from .evaluate_table import print_comparison
from .evaluate_where import open_where

_WAIT = 3600.0
"""Seconds that a rollout or a verdict may wait for a sandbox: long ones are all in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An evaluation whose input was read."""

    known: argparse.Namespace
    settings: AgentSettings
    tasks: tuple[Task, ...]
    folder: EvaluationFolder
    slots: int
    base: Scores | None

    @property
    def samples(self) -> int:
        """Rollouts of each task."""
        return self.folder.samples


@dataclass(slots=True)
class Ending:
    """How it came out."""

    through: bool = False


def run_policy(known: argparse.Namespace) -> int:
    """Exit code 1 when a bar was missed, 2 when nothing is known, 130 when stopped."""
    request = _request(known)
    started = time.monotonic()
    view = PolicyView(Console(stderr=True))
    ending = Ending()
    with locked(request.folder.run):
        try:
            with view:
                anyio.run(_supervise, request, view, ending)
        finally:
            if not request.folder.run.ledger.is_file():
                shutil.rmtree(request.folder.run.path)  # it never got as far as to hold anything
            elif not ending.through and view.done:
                view.say(
                    f"{view.done} of {view.total} rollouts are kept in "
                    f"{request.folder.run.path}: the same command goes on from there"
                )
    if not ending.through:
        return 130
    return _finish(request, seconds=time.monotonic() - started, taken_over=view.taken_over)


def _request(known: argparse.Namespace) -> Request:
    """Read all input, so that a mistake shows at once and not hours later."""
    if known.tasks is None:
        raise UserError("--tasks is missing; see patchgym evaluate --help")
    if len(known.compare) > 1:
        raise UserError(f"--compare takes one report with --policy, not {len(known.compare)}")
    for name in ("report", "predictions_out"):
        path = getattr(known, name)
        if path is not None and path.is_dir():
            raise UserError(f"--{name.replace('_', '-')} {path}: it is a folder; name a file")
    spec = parse_policy(known.policy)
    if spec.served and not known.tokenizer:
        raise UserError(
            f"--policy {known.policy}: ids are made here: give --tokenizer, the folder or GGUF "
            "file of the served model"
        )
    if not spec.where and not known.ray:
        raise UserError(NO_CLUSTER.format(policy=known.policy))
    base = read_scores(Path(known.compare[0])) if known.compare else None
    tasks, broken = read_tasks(known.tasks, known.recipes, known.mirror)
    if not tasks:
        raise UserError(f"--tasks {known.tasks}: no usable task in it: {_first(broken)}")
    settings = resolve_settings(
        tasks,
        environment=known.environment,
        scaffold=known.scaffold,
        limits=_limits(known),
        policy=known.policy,
        tokenizer=known.tokenizer,
        seed=known.seed,
        image=known.image,
        tests_timeout=known.timeout or AgentSettings(policy="").tests_timeout,
        reruns=known.reruns,
    )
    # A rollout in a repository holds a sandbox from its first call to its end.
    slots = known.slots or known.jobs * (1 if settings.environment == "repository" else 4)
    folder = prepare_folder(
        known.run_folder or Path("runs") / f"evaluate-{settings.key()}",
        settings,
        tasks=known.tasks,
        task_ids=[task.id for task in tasks],
        broken=broken,
        samples=known.samples,
        slots=slots,
    )
    return Request(
        known=known, settings=settings, tasks=tasks, folder=folder, slots=slots, base=base
    )


def _limits(known: argparse.Namespace) -> dict[str, float]:
    names = ("max_turns", "max_new_tokens", "context_tokens", "temperature")
    return {name: getattr(known, name) for name in names if getattr(known, name) is not None}


def _first(broken: Mapping[str, str]) -> str:
    return next((f"{name}: {why}" for name, why in broken.items()), "the file is empty")


async def _supervise(request: Request, view: PolicyView, ending: Ending) -> None:
    """The work beside its signal watch; both end together."""
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as work:
            await group.start(
                watch_signals, work, lambda: view.say("stopping (again to leave at once)")
            )
            group.start_soon(view.watch)
            await _work(request, view)
            ending.through = True
        group.cancel_scope.cancel()


async def _work(request: Request, view: PolicyView) -> None:
    known, settings = request.known, request.settings
    planned = len(request.tasks) * request.samples
    if len(await anyio.to_thread.run_sync(settled, request.folder)) == planned:
        view.planned(planned, planned)
        return  # a report is all that is to be made
    options = PolicyOptions(
        tokenizer=known.tokenizer,
        context_tokens=settings.limits.context_tokens,
        slots=request.slots,
        api_key_variable=known.api_key_variable,
        ray=known.ray,
    )
    scoring = ScoringSection(
        workers=known.jobs, deadline=4 * _WAIT, reruns=settings.reruns, queue=request.slots
    )
    sandbox = SandboxSection(
        image=settings.image,
        slots=known.jobs,
        memory_mib=0,
        tests_timeout=settings.tests_timeout,
        lease_timeout=_WAIT,
    )
    async with AsyncExitStack() as stack:
        view.doing = f"opening {known.policy}"
        opened = await stack.enter_async_context(open_policy(known.policy, options))
        view.doing = "preparing sandboxes"
        folder = await anyio.to_thread.run_sync(request.folder.with_policy, _facts(opened, known))
        domain, rollouts = await open_where(
            known.ray,
            request.tasks,
            settings,
            opened,
            sandbox=sandbox,
            scoring=scoring,
            view=view,
            stack=stack,
        )
        evaluation = AgentEvaluation(
            folder=folder,
            settings=settings,
            tasks=request.tasks,
            samples=request.samples,
            opened=opened,
            domain=domain,
            slots=request.slots,
            scoring=scoring,
            watcher=view,
            rollouts=rollouts,
        )
        await evaluation.run()


def _facts(opened: OpenedPolicy, known: argparse.Namespace) -> dict[str, object]:
    return {
        "spec": known.policy,
        "model": opened.model,
        "version": opened.version,
        "tokenizer": opened.tokenizer_source,
        "trainable": opened.trainable,
        "window": opened.window,
    }


def _finish(request: Request, *, seconds: float, taken_over: int) -> int:
    """Write the report, show it, and say by the exit code what it means."""
    known, folder = request.known, request.folder
    record = report_of(
        EvaluationFolder(run=folder.run, record=_reread(folder)),
        prices=Prices(prompt=known.price_in, sampled=known.price_out),
        seconds=seconds,
        taken_over=taken_over,
    )
    path = known.report or folder.report
    comparison = None
    if request.base is not None:
        comparison = compare(request.base, scores_of(record, str(path)))
        record["comparison"] = asdict(comparison)
    for each in {folder.report, path}:
        write_report(record, each)
    if known.predictions_out is not None:
        write_predictions(folder.run, known.predictions_out, model=record["policy"]["model"])
    if known.json:
        print(json.dumps(record, indent=2))
    else:
        console = Console()
        print_policy_report(record, console)
        if comparison is not None:
            print_comparison(comparison, console)
        console.print(f"report {path}", markup=False, highlight=False, soft_wrap=True)
    return _exit_code(record, known.fail_under)


def _reread(folder: EvaluationFolder) -> Mapping[str, Any]:
    """The folder's record with what the policy turned out to be."""
    from patchgym.trainer.agent_evaluation import open_evaluation

    return open_evaluation(folder.run).record


def _exit_code(record: Mapping[str, Any], bar: float | None) -> int:
    first = record["pass_at"].get("1")
    if first is None:
        why = next(iter(record["rollouts"]["unknown_reasons"]), "nothing was rolled out")
        print(f"patchgym: the outcome of no rollout is known: {why}", file=sys.stderr)
        return 2
    if bar is not None and first["rate"] < bar:
        print(
            f"patchgym: pass@1 is {first['rate']:.1%}: below --fail-under {bar:.1%}",
            file=sys.stderr,
        )
        return 1
    return 0
