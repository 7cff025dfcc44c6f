"""How the frequencies of rotary embeddings are stretched; `rotary` computes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

RopeKind: TypeAlias = Literal["linear", "llama3", "yarn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How a model's frequencies were stretched past the context that it was pretrained for.

    `linear` divides all of them (Chen et al. 2023, arXiv:2306.15595); `llama3` the slow ones, with
    a ramp between two wavelengths (Llama 3.1's configuration); `yarn` those that turn seldom in
    the pretrained context (Peng et al. 2023, arXiv:2309.00071; the ramp's ends are rounded outward
    to whole dimensions, as Hugging Face does).
    """

    kind: RopeKind
    """Which of the three."""
    factor: float
    """By how much the context was stretched."""
    original: int = 0
    """Tokens of context before that; unused by `linear`."""
    low: float = 1.0
    """`llama3`: wavelengths longer than `original / low` are stretched in full."""
    high: float = 4.0
    """`llama3`: wavelengths shorter than `original / high` are left as they are."""
    beta_fast: float = 32.0
    """`yarn`: what turns more often than this in `original` tokens is left as it is."""
    beta_slow: float = 1.0
    """`yarn`: what turns less often than this is stretched in full."""
    magnitude: float | None = None
    """`yarn`: what the rotated vectors are multiplied by; None for 0.1 ln(factor) + 1."""

    def __post_init__(self) -> None:
        """Refuse numbers that no ramp can have."""
        if self.kind not in ("linear", "llama3", "yarn"):
            raise ValueError(f"rotary scaling {self.kind!r} is not supported")
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"rotary scaling factor={self.factor} must be a positive number")
        if self.kind != "linear" and self.original < 1:
            raise ValueError(f"rotary scaling {self.kind} needs the original context, in tokens")
        if self.kind == "llama3" and not 0 < self.low < self.high:
            raise ValueError(f"rotary scaling needs 0 < low={self.low} < high={self.high}")
        if self.kind == "yarn" and not 0 < self.beta_slow < self.beta_fast:
            raise ValueError(
                f"rotary scaling needs 0 < beta_slow={self.beta_slow} < beta_fast={self.beta_fast}"
            )
