"""What came of a simulated cluster: rates, use, waits, the bottleneck, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FULL = 0.9
"""Use of a resource from which it is the bottleneck: random arrivals leave the rest unused."""
SERVERS = ("sampler", "host cores", "orchestrator", "learner")
"""What does work by itself; that it is full explains that what waits for it is full as well."""
PLACES = ("sandboxes", "verdict sandboxes", "reward workers")
"""What is held while a server works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds of all waits for one thing, percentiles by nearest rank."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Waits:
        """All zero of none."""
        if not seconds:
            return cls(count=0, mean=0.0, p50=0.0, p95=0.0, p99=0.0)
        line, count = sorted(seconds), len(seconds)

        def rank(share: float) -> float:
            return line[min(count - 1, max(0, -int(-share * count // 1) - 1))]

        return cls(
            count=count, mean=sum(line) / count, p50=rank(0.5), p95=rank(0.95), p99=rank(0.99)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleReport:
    """Of the window after the warm-up."""

    seconds: float
    """Simulated, of the window."""
    rollouts_per_second: float
    """Scored."""
    trained_per_second: float
    """Trained on; the others' groups were dropped."""
    tokens_per_second: float
    """Sampled."""
    steps_per_hour: float
    use: Mapping[str, float]
    """By resource, the share of what it could do that it did, 0 to 1: sampler (tokens of what its
    fullest batch would give, and the time for reading context in), host cores, orchestrator,
    learner, sandboxes (leased or in recycling), reward workers (with a verdict, or without a
    sandbox for the next), verdict sandboxes (where they are fewer or more than workers), slots."""
    waits: Mapping[str, Waits]
    """By what was waited for; `rollout` is a rollout's whole length, from its slot to its end."""
    bottleneck: str
    """A resource of `use`; or `rollout slots` where nothing is full, so that more rollouts in
    flight would give more; or `staleness bound` where the slots wait for new weights."""
    hosts_per_accelerator: float
    """Sandbox hosts for each accelerator, samplers and learners together; 0 without any."""
    cost_per_thousand: float
    """Of trajectories that were trained on, in the prices' currency; 0 where none was."""
    counts: Mapping[str, int]
    """Rollouts over the whole simulation: handed out, delivered, trained, dropped, held."""
    means: Mapping[str, float]
    """Means over time: rollouts flying, scorers busy, sandboxes busy, groups in the queue."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON, rounded to five digits."""
        return {name: _rounded(getattr(self, name)) for name in self.__slots__}


def bottleneck(use: Mapping[str, float]) -> str:
    """The name of what limits a cluster with such use."""
    for kind in (SERVERS, PLACES):
        most = max(kind, key=lambda name: use.get(name, 0.0))
        if use.get(most, 0.0) >= FULL:
            return most
    return "rollout slots" if use["slots"] >= FULL else "staleness bound"


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, Waits):
        return {name: _rounded(getattr(value, name)) for name in value.__slots__}
    return float(f"{value:.5g}") if isinstance(value, float) else value
