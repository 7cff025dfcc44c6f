"""Tasks that are left out of a run because group after group of them came to nothing.

    a group came to nothing (too_few, stale) -- `limit` in a row --> its task is left out
    a group is whole, or its rewards are all equal --> the count is 0 again
    patchgym train --resume RUN --readmit ID|all --> in again, the count 0

One broken task must not hold a run up again and again; and where everything breaks, no task is at
fault. So none is left out while most of what other tasks came to lately was nothing, too, and a run
in which nothing at all came of each task ends. A group that was late counts half, and not at all
while more than one in eight groups of other tasks comes to nothing: with weights that change fast,
any task's may be late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from .errors import RunError, RunStopped

_LATELY = 32
"""Groups looked back on, of all tasks."""
_SURE = 4
"""Times `limit` groups in a row, of all tasks, that must have come to nothing before a run ends."""
_MANY_LATE = 1 / 8
"""Share of other tasks' groups that come to nothing, past which being late counts for nothing."""


class Quarantine:
    """Counts what groups came to, by task; one per run."""

    def __init__(
        self,
        limit: int,
        tasks: Collection[str],
        *,
        failures: Mapping[str, int] | None = None,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        """`limit` 0 leaves no task out. Of an earlier part of the run: `failures` in a row by task,
        and the reasons of the tasks that are `left_out`; RunStopped when these are all."""
        self._limit = limit
        self._tasks = frozenset(tasks)
        self._failures = {task: (n, n) for task, n in (failures or {}).items() if n}
        """Groups in a row, and half failures, by task."""
        self._lately: deque[tuple[str, bool]] = deque(maxlen=_LATELY)
        self.left_out = {task: why for task, why in (left_out or {}).items() if task in self._tasks}
        """Reasons by task."""
        if self._tasks and len(self.left_out) == len(self._tasks):
            task, why = next(iter(self.left_out.items()))
            raise RunStopped(
                f"all {len(self._tasks)} tasks are left out ({task}: {why}): take them in again "
                "with --readmit ID|all"
            )

    def note(self, task_id: str, group_id: str, nothing: str = "") -> str:
        """A group has come to its end: `nothing` is why it came to nothing, empty when it did not.

        Returns why its task is left out from now on, empty when it is not. RunStopped when nothing
        comes of any task that was left. The last one is never left out.
        """
        self._lately.append((task_id, bool(nothing)))
        if not nothing:
            self._failures.pop(task_id, None)
            return ""
        count, halves = self._failures.get(task_id, (0, 0))
        count, halves = count + 1, halves + self._weight(task_id, nothing)
        self._failures[task_id] = count, halves
        if not self._too_often(task_id) or task_id in self.left_out:
            return ""
        why = f"{count} groups in a row came to nothing, the last of them {group_id}: {nothing}"
        left = self._tasks - self.left_out.keys()
        if self._nothing_at_all() and all(self._too_often(task) for task in left):
            raise RunStopped(
                f"nothing came of {len(left)} tasks, which are all that were left "
                f"(tasks.quarantine is {self._limit}); {task_id}: {why}"
            )
        if len(left) == 1 or self._others_fail(task_id) > 1 / 2:
            return ""
        self.left_out[task_id] = why
        return why

    def _too_often(self, task_id: str) -> bool:
        return 0 < 2 * self._limit <= self._failures.get(task_id, (0, 0))[1]

    def _nothing_at_all(self) -> bool:
        enough = len(self._lately) >= min(_LATELY, _SURE * self._limit)
        return enough and all(nothing for _, nothing in self._lately)

    def _weight(self, task_id: str, nothing: str) -> int:
        """Half failures that a group counts for."""
        if nothing != "stale":
            return 2
        return int(self._others_fail(task_id) <= _MANY_LATE)

    def _others_fail(self, task_id: str) -> float:
        """Share of other tasks' groups that came to nothing lately; 0 without any."""
        others = [nothing for other, nothing in self._lately if other != task_id]
        return sum(others) / len(others) if others else 0.0


def to_readmit(words: str, left_out: Collection[str]) -> tuple[str, ...]:
    """The tasks that `words` (ids after commas, or `all`) means; RunError for one not left out."""
    if words == "all":
        return tuple(sorted(left_out))
    wanted = tuple(word.strip() for word in words.split(",") if word.strip())
    for task in wanted:
        if task not in left_out:
            known = ", ".join(sorted(left_out)) or "none"
            raise RunError(f"--readmit {task}: it is not left out; left out: {known}")
    return wanted
