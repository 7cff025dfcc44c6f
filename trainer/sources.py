"""Sources of rollouts: the training book behind a gate, and a fixed list for evaluation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import anyio

from patchgym.agent import stream_seed

from .domain import Problem
from .group import GroupBook, WorkItem


class TrainingSource:
    """Hands out the book's rollouts; blocks while the staleness bound allows no new group."""

    def __init__(
        self,
        book: GroupBook,
        allowance: Callable[[], int],
        on_open: Callable[[WorkItem], None] = lambda item: None,
        version: Callable[[], int] = lambda: 0,
    ) -> None:
        """`version` is that of the policy, at which a rollout that is handed out begins."""
        self._book = book
        self._allowance = allowance
        self._version = version
        self._on_open = on_open
        self._waiters: deque[anyio.Event] = deque()
        self._closed = False

    async def next(self) -> WorkItem | None:
        """The next rollout, as soon as one may start; None once closed."""
        while not self._closed:
            item = self._book.next_item(self._allowance(), self._version())
            if item is not None:
                if item.member == item.attempt == item.part == 0:
                    self._on_open(item)
                self.wake()  # there may be more: one slot wakes the next, never all at once
                return item
            await self._wait()
        self.wake()
        return None

    async def _wait(self) -> None:
        """Wait for one's turn to ask again; hands the turn on when it can't be used."""
        mine = anyio.Event()
        self._waiters.append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                self.wake()
            else:
                self._waiters.remove(mine)
            raise

    def wake(self) -> None:
        """The book or the allowance changed: the slot that has waited longest asks again."""
        if self._waiters:
            self._waiters.popleft().set()

    def close(self) -> None:
        """Start no more rollouts."""
        self._closed = True
        self.wake()


class ListSource:
    """Every task `samples` times, tasks side by side, each with its own random stream."""

    def __init__(self, name: str, tasks: Sequence[Problem], *, samples: int, seed: int) -> None:
        self._items = [
            WorkItem(
                rollout_id=f"{name}-{index:03d}-s{sample}",
                group_id=f"{name}-{index:03d}",
                task=task,
                member=sample,
                attempt=0,
                seed=stream_seed(seed, task.id, sample),
            )
            for index, task in enumerate(tasks)
            for sample in range(samples)
        ]
        self._next = 0

    def __len__(self) -> int:
        return len(self._items)

    async def next(self) -> WorkItem | None:
        """The next rollout, None at the end."""
        if self._next == len(self._items):
            return None
        self._next += 1
        return self._items[self._next - 1]
