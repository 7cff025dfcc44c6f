"""Where an evaluation's rollouts come from: every task K times, failures of ours once more."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import anyio

from patchgym.agent import Trajectory, rule_for, stream_seed
from patchgym.datasets.task import Task
from patchgym.trainer.group import MAX_PARTS, WorkItem

_LONGEST = 120


def sample_id(task_id: str, sample: int) -> str:
    """The rollout id of a task's sample, good as a file's name."""
    plain = task_id.replace("/", "+")  # which no id has
    name = re.sub(r"[^\w.@=+-]", ".", plain)
    if name != plain or len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(task_id.encode()).hexdigest()[:8]}"
    return f"{name}-s{sample}"


def sample_items(tasks: Sequence[Task], samples: int, seed: int) -> list[WorkItem]:
    """Every task `samples` times, those of one task together: they share their prompt's cache."""
    return [
        WorkItem(
            rollout_id=sample_id(task.id, sample),
            group_id=task.id,
            task=task,
            member=sample,
            attempt=0,
            seed=stream_seed(seed, task.id, sample),
        )
        for task in tasks
        for sample in range(samples)
    ]


class SampleSource:
    """Hands out items; one whose rollout failed by no doing of the policy comes again.

    `next` blocks while rollouts are out that may have to come again.
    """

    def __init__(
        self,
        items: Iterable[WorkItem],
        *,
        seed: int,
        retries: int,
        started: Callable[[WorkItem], None],
    ) -> None:
        """`started` is told of each item that is handed out."""
        self._todo = deque(items)
        self._seed = seed
        self._retries = retries
        self._started = started
        self._out = 0
        self._changed = anyio.Event()

    async def next(self) -> WorkItem | None:
        """The next rollout; None when every one is settled."""
        while not self._todo:
            if not self._out:
                return None
            await self._changed.wait()
        item = self._todo.popleft()
        self._out += 1
        self._started(item)
        return item

    def settle(self, item: WorkItem, trajectory: Trajectory) -> bool:
        """Take a finished rollout back; False when it is to come again."""
        again = self._again(item, trajectory)
        if again is not None:
            self._todo.append(again)
        self._out -= 1
        self._changed.set()
        self._changed = anyio.Event()
        return again is None

    def _again(self, item: WorkItem, trajectory: Trajectory) -> WorkItem | None:
        reason = trajectory.stop_reason
        if reason == "straggler" and item.part < MAX_PARTS:
            return replace(item, part=item.part + 1, earlier=trajectory.turns)
        if not rule_for(reason).retried or reason == "scoring_failed":
            return None  # an unknown verdict is no reason to act again
        if item.attempt >= self._retries:
            return None
        attempt = item.attempt + 1
        seed = stream_seed(self._seed, item.task.id, item.member, attempt)
        return replace(item, attempt=attempt, seed=seed, part=0, earlier=())
