"""The bounded queue between rewards and learner; staleness is enforced where groups are taken.

put (assembler)  waits while the queue is full, in line     -> unblocked by take and evict, or its
                                                               deadline
take (learner)   waits for n groups that are fresh          -> unblocked by put, or its deadline

**Order.** The stalest first: a group's place is its oldest policy version, because that is what
runs out. Among groups of one version the tasks take turns, the one that was served longest ago
first, and within a task the first to come. So a task that floods the queue has, of each version,
one group more than another task that waits, at the most; and a group that is older than all others
is never passed over, whatever its task.

It holds whole groups, which the ledger has as `ready`, and is what memory has of them: after a kill
it is filled again from the ledger. `state` and `peek` look without changing anything.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from .errors import RunStopped
from .group import Group
from .statistics import percentile
from .telemetry.signals import group_taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles by nearest rank; all zero of an empty queue."""

    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """A snapshot."""

    depth: int
    """Groups in it."""
    capacity: int
    waiting: int
    """Groups in line to get in."""
    tasks: int
    """Different tasks in it."""
    seconds: Spread
    """Since each group came in."""
    versions: Spread
    """The learner's version less each group's oldest."""
    taken: int
    """Since the start."""
    evicted: int
    """Groups that went stale in it, since the start."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    group: Group
    version: int
    """The oldest policy version in it."""
    since: float
    """Seconds of the queue's clock."""


class GroupQueue:
    """A bounded queue of ready groups; one learner takes."""

    def __init__(self, capacity: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._held: list[_Held] = []
        """In the order in which they came."""
        self._line: deque[object] = deque()
        self._capacity = capacity
        self._clock = clock
        self._changed = anyio.Event()
        self._served: dict[str, int] = {}
        """When each task was last served, in takes of a group so far."""
        self._taken = self._evicted = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def capacity(self) -> int:
        """Groups it can hold."""
        return self._capacity

    async def put(
        self, group: Group, *, timeout: float = math.inf, culprit: Callable[[], str] = lambda: ""
    ) -> None:
        """Add a ready group; waits while the queue is full, and for those who waited before.

        Raises RunStopped, naming `culprit()`, after `timeout` seconds.
        """
        ticket = object()
        self._line.append(ticket)
        try:
            with anyio.fail_after(timeout):
                while self._line[0] is not ticket or len(self._held) >= self._capacity:
                    await self._changed.wait()
            self._add(group)
        except TimeoutError:
            raise RunStopped(
                f"group {group.group_id} of {group.task_id} waited {timeout:.0f} s for room among "
                f"{len(self._held)} groups: {culprit()}"
            ) from None
        finally:
            self._line.remove(ticket)
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
                    if len(self._held) >= count:
                        return
                    await self._changed.wait()
        except TimeoutError:
            raise RunStopped(
                f"the learner waited {timeout:.0f} s for {count} groups and has "
                f"{len(self._held)}: {culprit()}"
            ) from None

    def take(self, count: int, *, last_chance: int) -> list[Group]:
        """The first `count` groups, and with them all others older than version `last_chance`,
        which would be too stale for the next step: they are learned from now, or never."""
        chosen = [
            held
            for place, held in enumerate(self._ordered())
            if place < count or held.version < last_chance
        ]
        for held in chosen:
            self._served[held.group.task_id] = self._taken
            self._taken += 1
            group_taken(self._clock() - held.since)
        self._remove(chosen)
        return [held.group for held in chosen]

    def evict(self, oldest: int, on_stale: Callable[[Group], None]) -> None:
        """Hand groups with anything older than version `oldest` to `on_stale`; they leave."""
        stale = [held for held in self._held if held.version < oldest]
        self._evicted += len(stale)
        self._remove(stale)
        for held in stale:
            on_stale(held.group)

    def put_now(self, group: Group) -> None:
        """Add a group that can't wait, whether there is room or not."""
        self._add(group)
        self._notify()

    def peek(self) -> list[Group]:
        """All groups in the order in which they would be taken."""
        return [held.group for held in self._ordered()]

    def state(self, version: int) -> QueueState:
        """A snapshot, of a learner at `version`."""
        now = self._clock()
        tasks = Counter(held.group.task_id for held in self._held)
        return QueueState(
            depth=len(self._held),
            capacity=self._capacity,
            waiting=len(self._line),
            tasks=len(tasks),
            seconds=_spread([now - held.since for held in self._held]),
            versions=_spread([version - held.version for held in self._held]),
            taken=self._taken,
            evicted=self._evicted,
        )

    def _ordered(self) -> list[_Held]:
        served, waiting = dict(self._served), list(self._held)
        order: list[_Held] = []
        while waiting:
            oldest = min(held.version for held in waiting)
            # min keeps the first to come of those that are equal.
            first = min(
                (held for held in waiting if held.version == oldest),
                key=lambda held: served.get(held.group.task_id, -1),
            )
            served[first.group.task_id] = self._taken + len(order)
            order.append(first)
            waiting.remove(first)
        return order

    def _add(self, group: Group) -> None:
        self._held.append(_Held(group, group.oldest_version, self._clock()))

    def _remove(self, gone: Sequence[_Held]) -> None:
        if gone:
            left = {id(held) for held in gone}
            self._held = [held for held in self._held if id(held) not in left]
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(p50=0.0, p95=0.0, max=0.0)
    return Spread(p50=percentile(values, 0.5), p95=percentile(values, 0.95), max=max(values))
