"""What is compiled: a model, how it is trained, and the devices. Imports no JAX."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.lora.config import LoraConfig
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.execution import Keep
from patchgym.trainer.parallel.config import MeshConfig

from .chips import chip_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One learner on one topology."""

    name: str
    """What the command line and the table call it."""
    topology: str
    """Chip and shape, such as `v5e:4x4`."""
    model: str
    """A preset, or a folder."""
    mesh: MeshConfig = field(default_factory=MeshConfig)
    """How the topology's devices are used."""
    keep: Keep = "inputs"
    """What a layer keeps for its backward pass."""
    lora_rank: int = 0
    """Rank of adapters on all matrices; 0 trains all weights."""
    tokens: int = 32768
    """Tokens of a row."""

    def __post_init__(self) -> None:
        """Raise ValueError for a topology that isn't known, or whose chips the mesh doesn't use."""
        chip_of(self.topology)
        shape = self.topology.partition(":")[2].split("x")
        if not all(size.isdigit() for size in shape):
            raise ValueError(f"topology {self.topology!r} has no shape such as 4x4 or 2x2x1")
        chips = math.prod(int(size) for size in shape)
        if self.mesh.devices != chips:
            mesh = self.mesh
            raise ValueError(
                f"the mesh {mesh.fsdp} x {mesh.context} x {mesh.tensor} (fsdp, context, tensor) is "
                f"for {mesh.devices} chips, {self.topology} has {chips}"
            )

    def learner(self) -> LearnerConfig:
        """The learner's settings: bfloat16 products, float32 weights, a bfloat16 first moment."""
        return LearnerConfig(
            row_tokens=(self.tokens,),
            compute="bfloat16",
            first_moment="bfloat16",
            keep=self.keep,
            mesh=self.mesh,
            lora=LoraConfig(rank=self.lora_rank) if self.lora_rank else LoraConfig(),
        )

    def flops(self, model: ModelConfig) -> float:
        """Useful FLOPs of one stack of rows: what can't be left out, whatever is computed again.

        A token takes 6 a weight (4 where weights are frozen), and 6 L H D T in causal attention.
        """
        tokens = float(self.mesh.fsdp * self.tokens)
        weights = (4 if self.lora_rank else 6) * model.parameters
        seen = 6 * model.layers * model.heads * model.head_dim * self.tokens
        return tokens * (weights + seen)

    def plain(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def case_of(plain: dict[str, Any]) -> Case:
    """The case that `plain` made."""
    return Case(**{**plain, "mesh": MeshConfig(**plain["mesh"])})


def _case(name: str, fsdp: int, context: int, keep: Keep, *, tensor: int = 1) -> Case:
    """`name` is the chip, its shape, the model's size, and `full` or `lora`."""
    chip, shape, size, what = name.split("-")
    return Case(
        name=name,
        topology=f"{chip}:{shape}",
        model=f"qwen2.5-coder-{size}",
        mesh=MeshConfig(fsdp=fsdp, context=context, tensor=tensor),
        keep=keep,
        lora_rank=16 if what == "lora" else 0,
    )


CASES = {
    case.name: case
    for case in (
        _case("v5e-4x4-7b-full", 4, 4, "attention"),
        _case("v5e-4x4-7b-lora", 4, 4, "attention"),
        _case("v5e-4x4-32b-lora", 4, 4, "inputs"),
        _case("v5p-2x2x1-7b-full", 4, 1, "attention"),
        _case("v5p-2x2x1-7b-lora", 4, 1, "attention"),
        _case("v5p-2x2x1-32b-lora", 4, 1, "attention"),
        _case("v5p-2x2x2-7b-full", 8, 1, "attention"),
        _case("v5p-2x2x2-7b-lora", 8, 1, "attention"),
        _case("v5p-2x2x2-32b-lora", 8, 1, "attention"),
        _case("v6e-4x4-7b-full", 4, 4, "attention"),
        _case("v6e-4x4-7b-lora", 4, 4, "attention"),
        _case("v6e-4x4-32b-lora", 4, 4, "attention"),
    )
}
"""The table of `make aot`, by name."""
