"""When a wait of the learner has lasted long enough to look at it closely."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Where a run is at an instant."""

    step: int
    """Updates that the learner has made."""
    policy_version: int
    """Version of the weights that the sampler has."""
    waiting: str
    """What the learner waits for, in words; empty while it works."""


class WaitWatch:
    """Says once in each wait that it has passed its limit."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`limit` is in seconds; 0 says it never."""
        self._limit = limit
        self._clock = clock
        self._since: float | None = None
        self._step = -1
        self._told = False

    def passed(self, seen: Observation | None) -> float | None:
        """Seconds that the present wait has lasted, at the first look past the limit; else None."""
        if seen is None or not seen.waiting:
            self._since = None
            return None
        now = self._clock()
        # A step that was made between two looks ended the wait before it.
        if self._since is None or seen.step != self._step:
            self._since, self._step, self._told = now, seen.step, False
        waited = now - self._since
        if self._told or not self._limit or waited < self._limit:
            return None
        self._told = True
        return waited
