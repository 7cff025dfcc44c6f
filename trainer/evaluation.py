"""Held-out evaluation: every task a few times under fixed random streams, and the pass rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

from patchgym.agent import Trajectory
from patchgym.rewards import Reward

from .config import EvaluationSection
from .domain import Problem
from .group import WorkItem
from .pipeline import Pipeline
from .sources import ListSource
from .statistics import PassRate, pass_rate
from .telemetry.signals import evaluation_span

Keep = Callable[[str, WorkItem, Trajectory, Reward], Awaitable[None]]


async def evaluate(
    name: str,
    tasks: Sequence[Problem],
    pipeline: Pipeline,
    config: EvaluationSection,
    *,
    slots: int,
    keep: Keep,
    progress: Callable[[int, int], None],
) -> PassRate:
    """Roll out `samples` of each task with the current policy; `keep` stores each rollout.

    A rollout whose score is unknown is left out of the rate, never counted as a failure.
    """
    source = ListSource(name, tasks, samples=config.samples, seed=config.seed)
    outcomes: dict[str, list[bool]] = defaultdict(list)
    done = 0
    progress(0, len(source))

    async def deliver(item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        nonlocal done
        await keep(name, item, trajectory, reward)
        if reward.total is not None:
            outcomes[item.task.id].append(reward.resolved)
        done += 1
        progress(done, len(source))

    with evaluation_span(name, len(tasks)):
        await pipeline.run(source, deliver, slots=slots)
    return pass_rate(outcomes)
