"""Rotary embeddings: the frequencies of a head, plain or stretched.

Su et al. 2021, arXiv:2104.09864. D is the size of a head; its halves are rotated against each
other, so there are D/2 frequencies.

Frequencies are rounded to float32 where transformers and vLLM round them (the power, then its
reciprocal), so that the angles of a long context are the same bits here and there.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .rope import RopeScaling

Frequencies: TypeAlias = npt.NDArray[np.float64]
"""Radians a position, [D/2]."""


def rotary_frequencies(theta: float, size: int, scaling: RopeScaling | None = None) -> Frequencies:
    """Frequencies of a head of `size` D at the base `theta`, [D/2]."""
    powers = theta ** (np.arange(0, size, 2, dtype=np.float64) / size)
    plain = (np.float32(1) / powers.astype(np.float32)).astype(np.float64)
    if scaling is None:
        return np.asarray(plain)
    stretched = plain / scaling.factor
    kept = 0.0 if scaling.kind == "linear" else _kept(theta, size, plain, scaling)
    return np.asarray(kept * plain + (1 - kept) * stretched)


def rotary_magnitude(scaling: RopeScaling | None) -> float:
    """What rotated queries and keys are multiplied by; 1 but for `yarn`."""
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    if scaling.magnitude is not None:
        return scaling.magnitude
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0


def _kept(theta: float, size: int, plain: Frequencies, scaling: RopeScaling) -> Frequencies:
    """How much of each frequency stays unstretched, 0 to 1."""
    if scaling.kind == "llama3":
        turns = scaling.original * plain / (2 * math.pi)
        return np.clip((turns - scaling.low) / (scaling.high - scaling.low), 0, 1)

    def dimension(turns: float) -> float:
        ratio = scaling.original / (turns * 2 * math.pi)
        return size * math.log(ratio) / (2 * math.log(theta))

    first = max(math.floor(dimension(scaling.beta_fast)), 0)
    last = min(math.ceil(dimension(scaling.beta_slow)), size - 1)
    width = last - first or 0.001
    return 1 - np.clip((np.arange(size // 2) - first) / width, 0, 1)
