"""pass@k with intervals, from samples whose outcome is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchgym.sandbox.testing.report import wilson
from patchgym.trainer.statistics import pass_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The probability that at least one of k samples resolves a task, over tasks."""

    k: int
    rate: float
    interval: tuple[float, float]
    """95%. For k = 1 Wilson's at the effective sample size; past it Wilson's with the tasks as
    the sample, which is wide enough: a task's estimate spreads no more than a coin's toss."""
    tasks: int
    """Tasks with at least k samples whose outcome is known."""


def pass_at_k(samples: int, resolved: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): the unbiased estimator of Chen et al. (2021), for one task.

    `samples` is n, `resolved` is c. ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not 1 <= k <= samples or not 0 <= resolved <= samples:
        raise ValueError(f"no pass@{k} from {resolved} of {samples} samples")
    miss = 1.0
    for place in range(k):
        # (n-c-i)/(n-i): a product, since the binomials themselves overflow a float.
        miss *= max(0, samples - resolved - place) / (samples - place)
    return 1.0 - miss


def estimate(outcomes: Mapping[str, Sequence[bool]], k: int) -> Estimate | None:
    """pass@k over `outcomes` (by task id, its known samples); None where no task has k of them."""
    usable = {task: known for task, known in outcomes.items() if len(known) >= k}
    if not usable:
        return None
    values = [pass_at_k(len(known), sum(known), k) for known in usable.values()]
    rate = sum(values) / len(values)
    size = pass_rate(usable).effective_samples if k == 1 else float(len(values))
    return Estimate(k=k, rate=rate, interval=wilson(rate, size), tasks=len(values))


def ladder(samples: int) -> list[int]:
    """The k to report: powers of two below `samples`, and `samples` itself."""
    steps = [1 << power for power in range(samples.bit_length()) if 1 << power < samples]
    return [*steps, samples]
