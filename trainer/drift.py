"""Whether a mean has moved: sums that windows are made of, and a test that noise does not fool.

The unit is a group's mean: rollouts of one group resemble each other, so that counting them one by
one would make noise look certain. Two windows are compared by Welch's t (1947); t becomes a normal
deviate by Wallace's approximation (1959), so that one limit holds whatever the number of units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_UNITS = 10
"""With fewer units in either window nothing is said."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Units of one metric, as their sums."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Tally:
        """Of these units."""
        kept = list(values)
        return cls(len(kept), math.fsum(kept), math.fsum(value * value for value in kept))

    @property
    def mean(self) -> float:
        """nan without units."""
        return self.total / self.count if self.count else math.nan

    @property
    def variance(self) -> float:
        """Of the units, unbiased; 0 with fewer than two."""
        if self.count < 2:
            return 0.0
        return max(0.0, self.squares - self.total * self.total / self.count) / (self.count - 1)


def summed(tallies: Iterable[Tally]) -> Tally:
    """All of them as one."""
    count, total, squares = 0, 0.0, 0.0
    for each in tallies:
        count, total, squares = count + each.count, total + each.total, squares + each.squares
    return Tally(count, total, squares)


@dataclass(frozen=True, slots=True)
class Shift:
    """How a metric's mean moved between two windows."""

    before: float
    now: float
    deviates: float
    """The move in standard errors, as a normal deviate; its sign is the move's."""

    @property
    def rise(self) -> float:
        """In the metric's own unit."""
        return self.now - self.before


def shift(before: Tally, now: Tally) -> Shift | None:
    """The move from one window to another; None where there are too few units to tell."""
    if min(before.count, now.count) < LEAST_UNITS:
        return None
    return Shift(before.mean, now.mean, _deviates(before, now))


def _deviates(before: Tally, now: Tally) -> float:
    parts = before.variance / before.count, now.variance / now.count
    rise, error = now.mean - before.mean, math.sqrt(sum(parts))
    if abs(rise) < 1e-9:
        return 0.0
    if error < 1e-9:
        return math.copysign(math.inf, rise)
    t = rise / error
    freedom = sum(parts) ** 2 / (
        parts[0] ** 2 / (before.count - 1) + parts[1] ** 2 / (now.count - 1)
    )
    deviates = math.sqrt(freedom * math.log1p(t * t / freedom))
    return math.copysign(deviates * (8 * freedom + 1) / (8 * freedom + 3), rise)
