"""Advantages of a group's members, relative to the group: pure functions over the last axis.

Axes: `...` any leading axes (groups), `G` members of one group. Every function takes
`rewards [..., G]` and `counts_in_baseline [..., G]`, and returns `advantages [..., G]`. They use
only the array's own namespace (`__array_namespace__`), so NumPy arrays stay NumPy and JAX arrays
trace under `jit`; this module imports neither. Uneven groups are exact: a list of groups is mapped
one by one, or padded to one array whose padding does not count in the baseline.

- `rloo` (default): r_i minus the mean of the *other* counted members. Ahmadian et al. 2024,
  arXiv:2402.14740. No deviation.
- `grpo`: (r_i - mean) / (std + 1e-6). Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300. The paper
  leaves the kind of std open; here it is the one with n - 1, as in public trainers.
- `dr_grpo`: r_i - mean. Liu et al. 2025 (Dr. GRPO), arXiv:2503.20783. No deviation.

`decoupled` standardizes each component of the reward by itself before it weighs and adds them, so
that a rare component is not drowned by a noisy one, nor two different mixes of components mistaken
for each other because they add up to the same. Liu et al. 2026 (GDPO), arXiv:2601.05242; the kind
of std as in `grpo`. `scaled_over_batch` is the paper's last step; deviation: no mean is taken off,
since each group's is 0 already.

`overlong_penalty` shapes rewards before they are compared: DAPO's soft overlong punishment, Yu et
al. 2025, arXiv:2503.14476. No deviation; a rollout that a limit cut off is left out instead.

A member that doesn't count in the baseline (an infrastructure failure, padding) shapes nobody
else's advantage; its own is still reported against the counted members, and the caller's loss mask
decides whether it trains. Where nobody is left to compare with, the advantage is 0.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Estimator = Literal["rloo", "grpo", "dr_grpo"]
# A NumPy or JAX array: both offer `__array_namespace__`, which no shared static type describes.
Array = Any

_STD_EPSILON = 1e-6


def leave_one_out(rewards: Array, counts_in_baseline: Array) -> Array:
    """Reward minus the mean of the other counted members: `[..., G] -> [..., G]` (RLOO)."""
    xp = rewards.__array_namespace__()
    counted = counts_in_baseline.astype(rewards.dtype)
    total = (rewards * counted).sum(axis=-1, keepdims=True)
    others = counted.sum(axis=-1, keepdims=True) - counted
    baseline = (total - rewards * counted) / xp.maximum(others, 1)
    return xp.where(others > 0, rewards - baseline, xp.zeros_like(rewards))


def mean_centered(rewards: Array, counts_in_baseline: Array) -> Array:
    """Reward minus the mean of the counted members: `[..., G] -> [..., G]` (Dr. GRPO)."""
    xp = rewards.__array_namespace__()
    counted = counts_in_baseline.astype(rewards.dtype)
    size = counted.sum(axis=-1, keepdims=True)
    mean = (rewards * counted).sum(axis=-1, keepdims=True) / xp.maximum(size, 1)
    return xp.where(size > 0, rewards - mean, xp.zeros_like(rewards))


def standardized(rewards: Array, counts_in_baseline: Array) -> Array:
    """Mean-centered reward over the counted members' std: `[..., G] -> [..., G]` (GRPO)."""
    xp = rewards.__array_namespace__()
    counted = counts_in_baseline.astype(rewards.dtype)
    centered = mean_centered(rewards, counts_in_baseline)
    degrees = counted.sum(axis=-1, keepdims=True) - 1
    variance = (centered**2 * counted).sum(axis=-1, keepdims=True) / xp.maximum(degrees, 1)
    scaled = centered / (xp.sqrt(variance) + _STD_EPSILON)
    return xp.where(degrees > 0, scaled, xp.zeros_like(rewards))


def decoupled(values: Array, weights: Array, counts_in_baseline: Array) -> Array:
    """Weighted sum of standardized components: `[..., C, G], [C], [..., G] -> [..., G]` (GDPO).

    `weights` are signed: negative for penalties.
    """
    xp = values.__array_namespace__()
    counted = xp.broadcast_to(counts_in_baseline[..., None, :], values.shape)
    return (standardized(values, counted) * weights[:, None]).sum(axis=-2)


def scaled_over_batch(
    advantages: Sequence[npt.NDArray[np.float64]],
) -> list[npt.NDArray[np.float64]]:
    """A batch's groups, `[G]` each, over the root mean square of all of them (GDPO)."""
    everything = np.concatenate([*advantages, np.zeros(0)])
    size = float(np.sqrt(np.mean(everything**2))) if everything.size else 0.0
    return [group / (size + _STD_EPSILON) for group in advantages]


def component_advantages(
    values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Advantages `[G]` of one group by component: values `[C, G]`, signed weights `[C]`.

    NaN stands for a value that is not known: it is taken to be the mean of the group's others, and
    so moves nothing.
    """
    known = np.isfinite(values)
    mean = np.where(known, values, 0).sum(axis=1, keepdims=True) / np.maximum(
        known.sum(axis=1, keepdims=True), 1
    )
    filled = np.where(known, values, mean)
    everyone = np.ones(values.shape[-1], np.bool_)
    result: npt.NDArray[np.float64] = decoupled(filled, weights, everyone)
    return result


def overlong_penalty(lengths: Array, *, limit: int, buffer: int) -> Array:
    """What sampled tokens `lengths` [...] cost: 0 to -1, `[...] -> [...]` (DAPO).

    Nothing up to `limit - buffer` tokens, then linearly more, all of it from `limit` on.
    """
    xp = lengths.__array_namespace__()
    return -xp.clip((lengths - (limit - buffer)) / buffer, 0.0, 1.0)


_ESTIMATORS: dict[Estimator, Callable[[Array, Array], Array]] = {
    "rloo": leave_one_out,
    "grpo": standardized,
    "dr_grpo": mean_centered,
}


def group_advantages(
    rewards: Sequence[float],
    *,
    counts_in_baseline: Sequence[bool] | None = None,
    estimator: Estimator = "rloo",
) -> npt.NDArray[np.float64]:
    """Advantages of one group, `[G]`, in double precision.

    `counts_in_baseline` (default: everyone) has one entry a reward. Raises ValueError for an
    unknown estimator, lengths that differ, or a counted reward that is not finite.
    """
    if estimator not in _ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}: choose one of {sorted(_ESTIMATORS)}")
    values = np.asarray(rewards, np.float64)
    counted = (
        np.ones(values.shape, np.bool_)
        if counts_in_baseline is None
        else np.asarray(counts_in_baseline, np.bool_)
    )
    if values.ndim != 1 or counted.shape != values.shape:
        raise ValueError(f"want one flag a reward, got {values.shape} and {counted.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"rewards must be finite, got {values.tolist()}")
    result: npt.NDArray[np.float64] = _ESTIMATORS[estimator](values, counted)
    return result
