"""Many verdicts: a few at a time, each kept as soon as it is there, none taken twice.

Workers take the next verdict from one list, in which the first repeat of every task comes before
the second of any. A worker waits for its judge alone, which has a deadline.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import anyio.to_thread

from patchgym.datasets.task import Task
from patchgym.rewards.base import Verdict
from patchgym.rewards.workers import Judge
from patchgym.sandbox import PatchgymError

from .log import log_text
from .predictions import Prediction, Predictions
from .report import Judged
from .store import Store, verdict_key


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """How an evaluation goes."""

    repeats: int = 1
    """Verdicts a task, each in a fresh sandbox."""
    jobs: int = 2
    """Verdicts at once."""
    deadline: float = 4 * 3600.0
    """Seconds for one verdict, building its image included; past it the verdict is unknown."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What verdicts depend on beside task and patch, JSON types only; with other settings they
    are taken again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One verdict to take."""

    task: Task
    prediction: Prediction
    repeat: int
    """From 0."""
    key: str


class Watcher(Protocol):
    """Sees an evaluation go on; called on the event loop, so it must not block."""

    def planned(self, total: int, taken_over: int) -> None:
        """So many verdicts in all, and so many that were there already."""
        ...

    def started(self, attempt: Attempt) -> None:
        """Its judge begins."""
        ...

    async def finished(self, attempt: Attempt, verdict: Verdict) -> None:
        """The verdict is kept. What this raises ends the evaluation."""
        ...


def plan(
    tasks: Sequence[Task], predictions: Predictions, config: EvaluationConfig
) -> list[Attempt]:
    """Every verdict to take, in order."""
    return [
        Attempt(
            task=task,
            prediction=prediction,
            repeat=repeat,
            key=verdict_key(task, prediction.patch, config.settings, repeat),
        )
        for repeat in range(config.repeats)
        for task in tasks
        if (prediction := predictions.by_task.get(task.id)) is not None
    ]


async def evaluate(
    tasks: Sequence[Task],
    predictions: Predictions,
    judge: Judge,
    store: Store,
    config: EvaluationConfig,
    watcher: Watcher,
) -> dict[str, Judged]:
    """What came of each task that has a prediction, by id; `store` is open.

    Whatever a judge raises makes its own verdict unknown, and the others go on.
    """
    attempts = await anyio.to_thread.run_sync(plan, tasks, predictions, config)
    missing = [each for each in attempts if store.known(each.key) is None]
    watcher.planned(len(attempts), len(attempts) - len(missing))
    fresh: dict[str, Verdict] = {}
    waiting = iter(missing)

    async def work() -> None:
        for attempt in waiting:  # shared: each worker takes the next one
            watcher.started(attempt)
            verdict, fault = await _judged(attempt, judge, config.deadline)
            with anyio.CancelScope(shield=True):  # it was paid for
                await anyio.to_thread.run_sync(_keep, store, attempt, verdict, fault)
            fresh[attempt.key] = verdict
            await watcher.finished(attempt, verdict)

    async with anyio.create_task_group() as workers:
        for _ in range(min(config.jobs, len(missing))):
            workers.start_soon(work)
    return dict(_collect(attempts, store, fresh))


async def _judged(attempt: Attempt, judge: Judge, deadline: float) -> tuple[Verdict, str]:
    """The verdict, and the trace where the fault is ours."""
    problem, fault = f"no verdict within {deadline:.0f} s", ""
    try:
        with anyio.move_on_after(deadline):
            return await judge(attempt.task, attempt.prediction.patch), ""
    except PatchgymError as error:
        problem = f"{type(error).__name__}: {error}"
    except Exception as error:  # one task's accident must not end the others
        problem = f"a fault of patchgym's: {type(error).__name__}: {error}"
        fault = traceback.format_exc()
    return Verdict(status="unknown", evidence="infra", detail=problem), fault


def _keep(store: Store, attempt: Attempt, verdict: Verdict, fault: str) -> None:
    task, prediction = attempt.task, attempt.prediction
    text = log_text(task, prediction.patch, prediction.model, verdict, attempt.repeat)
    store.keep(attempt.key, task.id, attempt.repeat, verdict, f"{text}\n{fault}")


def _collect(
    attempts: Sequence[Attempt], store: Store, fresh: Mapping[str, Verdict]
) -> Iterator[tuple[str, Judged]]:
    by_task: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        by_task.setdefault(attempt.task.id, []).append(attempt)
    for task_id, mine in by_task.items():
        found = [fresh.get(each.key) or store.known(each.key) for each in mine]
        yield (
            task_id,
            Judged(
                verdicts=tuple(verdict for verdict in found if verdict is not None),
                logs=tuple(store.log_name(task_id, each.repeat) for each in mine),
                model=mine[0].prediction.model,
            ),
        )
