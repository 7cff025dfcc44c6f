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

    async def enough(
        self,
        count: int,
        *,
        oldest: int,
        on_stale: Callable[[Group], None],
        timeout: float,
        culprit: Callable[[], str],
    ) -> None:
        """Return when there are `count` groups with nothing older than version `oldest`.

        Older ones are handed to `on_stale` and leave the queue. Raises RunStopped, naming
        `culprit()`, after `timeout` seconds.
        """
        try:
            with anyio.fail_after(timeout):
                while True:
                    self.evict(oldest, on_stale)
                    if len(self._groups) >= count:
                        return
                    await self._changed.wait()
        except TimeoutError:
            raise RunStopped(
                f"the learner waited {timeout:.0f} s for {count} groups and has "
                f"{len(self._groups)}: {culprit()}"
            ) from None

    def take(self, count: int, *, last_chance: int) -> list[Group]:
        """The `count` stalest groups, and with them all others older than version `last_chance`,
        which would be too stale for the next step: they are learned from now, or never."""
        ordered = sorted(self._groups, key=lambda group: group.oldest_version)
        chosen = [
            group
            for place, group in enumerate(ordered)
            if place < count or group.oldest_version < last_chance
        ]
        for group in chosen:
            self._groups.remove(group)
        self._notify()
        return chosen

    def evict(self, oldest: int, on_stale: Callable[[Group], None]) -> None:
        """Hand groups with anything older than version `oldest` to `on_stale`; they leave."""
        stale = [group for group in self._groups if group.oldest_version < oldest]
        for group in stale:
            self._groups.remove(group)
            on_stale(group)
        if stale:
            self._notify()

    def put_now(self, group: Group) -> None:
        """Add a group that can't wait, whether there is room or not."""
        self._groups.append(group)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
