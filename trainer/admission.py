"""Admission: how many rollouts may be under way, by what the sampler can bear.

Additive increase, multiplicative decrease (Chiu and Jain, 1989), as networks have it: while the
sampler has memory to spare the limit grows by one a look; when it preempts turns, or its key/value
memory is all but full with turns in line, the limit falls by a third. A sampler that reserves its
memory up front reports neither, and the limit stays where it is.
"""

from __future__ import annotations

import anyio

from patchgym.agent import PolicyLoad

HIGH_USE = 0.95
"""Share of key/value memory past which a turn in line is a sign of overload."""
LOW_USE = 0.85
"""Share below which more may start."""
DECREASE = 2 / 3
"""What is left of the limit after an overload."""
SETTLE = 8
"""Looks after a decrease before the next: what was cancelled frees its memory first."""


class Admission:
    """The limit on rollouts under way, between `least` and `most`."""

    def __init__(self, most: int, *, least: int = 1, interval: float = 0.5) -> None:
        """`interval` is the time between two looks at the load, seconds."""
        self._most, self._least = most, min(least, most)
        self._preemptions: int | None = None
        self._settling = 0
        self._changed = anyio.Event()
        self.interval = interval
        self.limit = most
        self.decreases = 0
        """How often the limit fell."""

    async def permits(self, slot: int) -> None:
        """Wait until slot number `slot`, counted from 0, is within the limit."""
        while slot >= self.limit:
            await self._changed.wait()

    def follow(self, load: PolicyLoad, under_way: int) -> None:
        """Look at the load while `under_way` rollouts go."""
        before = load.preemptions if self._preemptions is None else self._preemptions
        self._preemptions = load.preemptions
        overload = load.preemptions > before or (load.cache_use >= HIGH_USE and load.waiting > 0)
        if self._settling:
            self._settling -= 1
        elif overload:
            self._set(max(self._least, int(min(self.limit, under_way) * DECREASE)))
            self.decreases += 1
            self._settling = SETTLE
        elif load.cache_use < LOW_USE and self.limit < self._most:
            self._set(self.limit + 1)

    def _set(self, limit: int) -> None:
        self.limit = limit
        self._changed.set()
        self._changed = anyio.Event()
