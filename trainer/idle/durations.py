"""Durations by stage in few numbers: counts in buckets whose bounds grow by 9% each.

Buckets of several steps add up, so that percentiles over any number of steps can be read from what
each step left behind. A percentile is the upper bound of its bucket: at most 9.1% too high.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_PER_OCTAVE = 8
LEAST = 1e-3
"""Seconds: what is shorter counts as this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles of durations, seconds."""

    count: int
    seconds: float
    """All of them together."""
    p50: float
    p95: float
    p99: float


@dataclass(slots=True)
class _Buckets:
    counts: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0


class Durations:
    """Collects durations by stage."""

    def __init__(self) -> None:
        self._stages: dict[str, _Buckets] = {}

    def add(self, stage: str, seconds: float) -> None:
        """One more."""
        buckets = self._stages.setdefault(stage, _Buckets())
        buckets.counts[_bucket(seconds)] += 1
        buckets.seconds += seconds

    def take(self) -> dict[str, Any]:
        """All since the last call, as JSON: by stage the seconds and the counts by bucket."""
        stages, self._stages = self._stages, {}
        return {
            stage: {
                "seconds": round(buckets.seconds, 4),
                "buckets": {str(key): count for key, count in sorted(buckets.counts.items())},
            }
            for stage, buckets in sorted(stages.items())
        }


def spread_of(records: Iterable[Mapping[str, Any]]) -> Spread:
    """The percentiles of what `take` gave for one stage, several of them together."""
    counts: Counter[int] = Counter()
    seconds = 0.0
    for record in records:
        seconds += record["seconds"]
        for key, count in record["buckets"].items():
            counts[int(key)] += count
    ordered = sorted(counts.items())
    p50, p95, p99 = (_percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Spread(count=sum(counts.values()), seconds=seconds, p50=p50, p95=p95, p99=p99)


def _bucket(seconds: float) -> int:
    return math.ceil(_PER_OCTAVE * math.log2(max(seconds, LEAST)))


def _percentile(ordered: list[tuple[int, int]], share: float) -> float:
    """By nearest rank; 0 without any."""
    rank = math.ceil(share * sum(count for _, count in ordered))
    seen = 0
    for key, count in ordered:
        seen += count
        if seen >= rank:
            return float(2 ** (key / _PER_OCTAVE))
    return 0.0
