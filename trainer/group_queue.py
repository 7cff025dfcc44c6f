"""The bounded queue between rewards and learner; staleness is enforced where groups are taken.

put (assembler)  waits while the queue is full      -> unblocked by take
take (learner)   waits for n groups that are fresh  -> unblocked by put, or its deadline
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import anyio

from .errors import RunStopped
from .group import Group


class GroupQueue:
    """A bounded FIFO of ready groups."""

    def __init__(self, capacity: int) -> None:
        self._groups: deque[Group] = deque()
        self._capacity = capacity
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def capacity(self) -> int:
        """Groups it can hold."""
        return self._capacity

    async def put(self, group: Group) -> None:
        """Add a ready group; waits while the queue is full."""
        while len(self._groups) >= self._capacity:
            await self._changed.wait()
        self._groups.append(group)
        self._notify()

    async def take(
        self,
        count: int,
        *,
        version: int,
        max_staleness: int,
        on_stale: Callable[[Group], None],
        timeout: float,
        culprit: Callable[[], str],
    ) -> list[Group]:
        """`count` groups whose staleness at `version` is within the bound.

        Staler ones are handed to `on_stale` and leave the queue. Raises RunStopped, naming
        `culprit()`, after `timeout` seconds.
        """
        try:
            with anyio.fail_after(timeout):
                while True:
                    self._evict(version - max_staleness, on_stale)
                    if len(self._groups) >= count:
                        taken = [self._groups.popleft() for _ in range(count)]
                        self._notify()
                        return taken
                    await self._changed.wait()
        except TimeoutError:
            raise RunStopped(
                f"the learner waited {timeout:.0f} s for {count} groups and has "
                f"{len(self._groups)}: {culprit()}"
            ) from None

    def put_back(self, groups: list[Group]) -> None:
        """Return taken groups to the front, in their order; they were not trained."""
        self._groups.extendleft(reversed(groups))
        self._notify()

    def _evict(self, oldest: int, on_stale: Callable[[Group], None]) -> None:
        stale = [group for group in self._groups if group.oldest_version < oldest]
        for group in stale:
            self._groups.remove(group)
            on_stale(group)
        if stale:
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
