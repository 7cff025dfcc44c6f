"""The sampler's seconds: it generates while any turn is under way, or it waits for the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .courses import Stretch, totals

SAMPLING = "sampling"
"""The stage of rollouts whose turn is under way."""
GENERATING = "generating"
"""What the sampler does meanwhile."""


class SamplerAccount:
    """Is told when the first turn begins and when the last one ends."""

    def __init__(self, now: float) -> None:
        self.since = now
        """The begin of what it does now; what was before is settled."""
        self.seconds: dict[str, float] = {}
        """By what it did or waited for, up to `since`."""
        self.shares: Mapping[str, float] = {}
        """The board's shares when the wait began."""

    def wakes(self, path: Iterable[Stretch], now: float) -> None:
        """A turn is asked for, and `path` is what had to come before it."""
        for stage, seconds in totals(path).items():
            self._add(stage, seconds)
        self.since = now

    def sleeps(self, shares: Mapping[str, float], now: float) -> None:
        """The last turn ended."""
        self.generated(now)
        self.shares = shares

    def generated(self, now: float) -> None:
        """It has generated up to now."""
        self._add(GENERATING, now - self.since)
        self.since = now

    def _add(self, what: str, seconds: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds
