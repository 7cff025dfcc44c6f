"""Small statistics for reports: percentiles, and pass rates with honest intervals.

Samples of one task resemble each other, so n samples say less than n independent ones. The
interval is Wilson's (1927) at the effective sample size n / deff, where the design effect
deff = 1 + (m - 1) * ICC comes from the one-way analysis of variance between tasks (Kish, 1965).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchgym.rewards.evaluation.report import percentile as nearest_rank
from patchgym.sandbox.testing.report import wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """A share of successes with its 95% interval."""

    pass_rate: float
    interval: tuple[float, float]
    """Wilson's 95% interval at the effective sample size."""
    samples: int
    effective_samples: float
    """Samples divided by the design effect of several samples a task."""


def design_effect(clusters: Sequence[Sequence[bool]]) -> float:
    """1 + (m - 1) * ICC over clusters of outcomes; never below 1."""
    sizes = [len(c) for c in clusters if c]
    total, count = sum(sizes), len(sizes)
    if count < 2 or total <= count:
        return 1.0
    grand = sum(sum(c) for c in clusters) / total
    means = [sum(c) / len(c) for c in clusters if c]
    between = sum(n * (mu - grand) ** 2 for n, mu in zip(sizes, means, strict=True)) / (count - 1)
    within = sum(n * mu * (1 - mu) for n, mu in zip(sizes, means, strict=True)) / (total - count)
    size = (total - sum(n * n for n in sizes) / total) / (count - 1)
    if between + (size - 1) * within <= 0:
        return 1.0
    icc = (between - within) / (between + (size - 1) * within)
    return max(1.0, 1 + (total / count - 1) * icc)


def pass_rate(outcomes: Mapping[str, Sequence[bool]]) -> PassRate:
    """The pass rate over `outcomes` (by task id, a list of samples)."""
    clusters = list(outcomes.values())
    samples = sum(len(c) for c in clusters)
    rate = sum(sum(c) for c in clusters) / samples if samples else 0.0
    effective = samples / design_effect(clusters)
    return PassRate(
        pass_rate=rate,
        interval=wilson(rate, effective),
        samples=samples,
        effective_samples=effective,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; nan without values."""
    found = nearest_rank(values, share)
    return math.nan if found is None else found
