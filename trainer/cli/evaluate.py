"""`patchgym evaluate`: judge predictions or a policy, write one report, compare reports."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anyio
import anyio.to_thread
from rich.console import Console

import patchgym
from patchgym.datasets.task import Task
from patchgym.rewards import JudgeConfig, Verdict, judge
from patchgym.rewards.evaluation import (
    BUILT_IN,
    Comparison,
    Evaluation,
    EvaluationConfig,
    Judged,
    Predictions,
    Scores,
    Store,
    built_in,
    compare,
    document,
    evaluate,
    read_predictions,
    read_scores,
    scores_of,
    write_report,
)
from patchgym.trainer.errors import UserError
from patchgym.trainer.stopping import watch_signals
from patchgym.trainer.task_pool import open_task_pool

from .evaluate_arguments import check_arguments, evaluate_arguments, read_tasks
from .evaluate_table import print_comparison, print_evaluation
from .evaluate_view import EvaluationView


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An evaluation whose input was read."""

    tasks: tuple[Task, ...]
    broken: Mapping[str, str]
    """Rows of the tasks' file that can't be used, and why, by id."""
    predictions: Predictions
    report: Path
    base: Scores | None
    """What to compare with afterwards."""


@dataclass(slots=True)
class Ending:
    """How an evaluation came out."""

    judged: dict[str, Judged] | None = None
    """None until it is through."""
    settings: Mapping[str, object] | None = None
    stopped: bool = False


def run(words: Sequence[str]) -> int:
    """Entry point; exit code 1 when a bar was missed, 2 when nothing could be judged."""
    known = evaluate_arguments().parse_args(words)
    check_arguments(known, words)
    if len(known.compare) == 2:
        return _compare_reports(known)
    if known.policy is not None:
        from .evaluate_policy import run_policy

        return run_policy(known)
    request = _request(known)
    started = time.monotonic()
    view = EvaluationView(Console(stderr=True))
    unusable = _unusable(request)
    if count := len({*request.broken, *unusable}):
        view.say(f"{count} tasks can't be judged: the report will say why")
    with Store(request.report) as store:
        ending = _session(request, known, store, view)
        if ending.judged is None:
            return 130
    evaluation = Evaluation(
        task_ids=tuple(dict.fromkeys((*(task.id for task in request.tasks), *request.broken))),
        submitted_ids=tuple(request.predictions.ids),
        judged=ending.judged,
        broken=request.broken,
        unusable=unusable,
        notes=request.predictions.notes,
        settings=ending.settings or {},
        repeats=known.repeats,
        taken_over=view.taken_over,
        seconds=time.monotonic() - started,
    )
    return _finish(evaluation, request, known)


def _compare_reports(known: argparse.Namespace) -> int:
    for name in ("tasks", "predictions", "policy", "report"):
        if getattr(known, name) is not None:
            raise UserError(f"--{name} has no use with two reports to compare: leave one out")
    base, other = (read_scores(Path(each)) for each in known.compare)
    comparison = compare(base, other)
    if known.json:
        print(json.dumps(asdict(comparison), indent=2))
    else:
        print_comparison(comparison, Console())
    return 0


def _request(known: argparse.Namespace) -> Request:
    """Read all input, so that a mistake shows at once and not hours later."""
    for name in ("tasks", "predictions", "report"):
        if getattr(known, name) is None:
            raise UserError(f"--{name} is missing; see patchgym evaluate --help")
    if len(known.compare) > 2:
        raise UserError(f"--compare takes one or two reports, not {len(known.compare)}")
    if known.report.is_dir():
        raise UserError(f"--report {known.report}: it is a folder; name a file")
    base = read_scores(Path(known.compare[0])) if known.compare else None
    tasks, broken = read_tasks(known.tasks, known.recipes, known.mirror)
    if known.predictions in BUILT_IN:
        predictions = built_in(known.predictions, tasks)
    else:
        predictions = read_predictions(Path(known.predictions))
    return Request(
        tasks=tasks, broken=broken, predictions=predictions, report=known.report, base=base
    )


def _session(
    request: Request, known: argparse.Namespace, store: Store, view: EvaluationView
) -> Ending:
    """Judge; whatever ends it early, say what is kept and how to go on."""
    ending = Ending()
    try:
        with view:
            anyio.run(_supervise, request, known, store, view, ending)
    finally:
        if ending.judged is None and view.done:
            view.say(
                f"{view.done} of {view.total} verdicts are kept in {store.folder}: "
                "the same command goes on from there"
            )
    return ending


async def _supervise(
    request: Request,
    known: argparse.Namespace,
    store: Store,
    view: EvaluationView,
    ending: Ending,
) -> None:
    """The work beside its signal watch; both end together."""

    def stopping() -> None:
        ending.stopped = True
        view.say("stopping (again to leave at once)")

    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, stopping)
            group.start_soon(view.watch)
            await _judge_all(request, known, store, view, ending)
        group.cancel_scope.cancel()


async def _judge_all(
    request: Request,
    known: argparse.Namespace,
    store: Store,
    view: EvaluationView,
    ending: Ending,
) -> None:
    async with open_task_pool(request.tasks, image=known.image, size=known.jobs) as opened:
        pool = opened.pool
        view.check = pool.engines[0].ping
        config = EvaluationConfig(
            repeats=known.repeats,
            jobs=known.jobs,
            settings={
                "image": await pool.engines[0].image_id(opened.image) or opened.image,
                "timeout": known.timeout,
                "reruns": known.reruns,
                "patchgym": patchgym.__version__,
            },
        )
        judging = JudgeConfig(
            images=opened.images, tests_timeout=known.timeout, reruns=known.reruns
        )

        async def take(task: Task, patch: bytes) -> Verdict:
            return await judge(task, patch, pool, judging)

        judged = await evaluate(request.tasks, request.predictions, take, store, config, view)
    ending.judged, ending.settings = judged, config.settings


def _unusable(request: Request) -> dict[str, str]:
    """The broken predictions that are for a task of the file."""
    ids = {task.id for task in request.tasks}
    return {each: why for each, why in request.predictions.broken.items() if each in ids}


def _finish(evaluation: Evaluation, request: Request, known: argparse.Namespace) -> int:
    """Write the report, show it, and say by the exit code what it means."""
    record = document(evaluation)
    comparison: Comparison | None = None
    if request.base is not None:
        comparison = compare(request.base, scores_of(record, str(request.report)))
        record["comparison"] = asdict(comparison)
    write_report(record, request.report)
    if known.json:
        print(json.dumps(record, indent=2))
    else:
        console = Console()
        print_evaluation(record, console)
        if comparison is not None:
            print_comparison(comparison, console)
        console.print(f"report {request.report}", markup=False, highlight=False, soft_wrap=True)
    return _exit_code(evaluation, known.fail_under)


def _exit_code(evaluation: Evaluation, bar: float | None) -> int:
    if not evaluation.ids("resolved", "unresolved", "empty_patch"):
        complaint = "no task has a verdict"
        if evaluation.unknown_ids and not evaluation.broken and not evaluation.judged:
            complaint = f"no prediction is for one of these {len(evaluation.task_ids)} tasks"
        print(f"patchgym: {complaint}: see the report", file=sys.stderr)
        return 2
    if bar is not None and evaluation.mean_rate < bar:
        print(
            f"patchgym: {evaluation.mean_rate:.1%} resolved: below --fail-under {bar:.1%}",
            file=sys.stderr,
        )
        return 1
    return 0
