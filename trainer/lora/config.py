"""What adapters are trained, and how large they are; imports no JAX, for the command line."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, fields

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.layout import Shape, layer_shapes

TARGETS: tuple[str, ...] = ("query", "key", "value", "output", "gate", "up", "down")
"""The matrices of a layer, by the decoder's names; each one can have an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """Settings of low-rank adapters: W + (alpha / rank) A B, of which A and B are trained."""

    rank: int = 0
    """Columns of A and rows of B (r); 0: no adapters, all weights are trained."""
    alpha: float = 32.0
    """What A B is scaled by, times the rank."""
    targets: tuple[str, ...] = TARGETS
    """Matrices that have an adapter, in every layer."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the field, for a value that could not work or has no effect."""
        if self.rank < 0:
            raise ValueError(f"learner.lora.rank can't be {self.rank}: 1 or more, or 0 for none")
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"learner.lora.alpha can't be {self.alpha}: it must be above 0")
        self._check_targets()
        if self.rank == 0:
            self._refuse_unread()

    @property
    def scale(self) -> float:
        """What multiplies A B; ZeroDivisionError without adapters."""
        return self.alpha / self.rank

    def _check_targets(self) -> None:
        if not self.targets:
            raise ValueError("learner.lora.targets is empty: leave it out to adapt all matrices")
        for name in self.targets:
            if name not in TARGETS:
                near = difflib.get_close_matches(name, TARGETS, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TARGETS)}"
                raise ValueError(f"learner.lora.targets has {name!r}, no matrix of a layer; {hint}")
            if self.targets.count(name) > 1:
                raise ValueError(f"learner.lora.targets names {name!r} twice")

    def _refuse_unread(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default:
                raise ValueError(
                    f"learner.lora.{each.name} is {value!r}, which nothing reads with"
                    " learner.lora.rank = 0: set a rank, such as 16, or leave it out"
                )


def adapter_shapes(config: LoraConfig, model: ModelConfig) -> dict[str, tuple[Shape, Shape]]:
    """Shapes of A [L, in, r] and B [L, r, out] of each target, in the order of `TARGETS`.

    ValueError when `config` has no adapters.
    """
    if config.rank == 0:
        raise ValueError("learner.lora.rank is 0: there are no adapters; set a rank, such as 16")
    theirs, layers, rank = layer_shapes(model), model.layers, config.rank
    return {
        name: ((layers, theirs[name][1], rank), (layers, rank, theirs[name][0]))
        for name in TARGETS
        if name in config.targets
    }


def adapter_count(config: LoraConfig, model: ModelConfig) -> int:
    """Count of trained weights; in float32 a file of them has four bytes each, and a header."""
    pairs = adapter_shapes(config, model).values()
    return sum(math.prod(shape) for pair in pairs for shape in pair)
