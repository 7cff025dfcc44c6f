"""How many devices a learner has, and what each splits; imports no JAX, for the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    """Sizes of the mesh's axes; their product is the number of devices."""

    fsdp: int = 1
    """Rows that are trained at once, a device each; weights and optimizer are split as well."""
    context: int = 1
    """Parts of each row's tokens; weights and optimizer are split over these devices, too."""
    tensor: int = 1
    """Parts of each matrix and of the heads; must divide the model's key heads."""

    def __post_init__(self) -> None:
        """Raise ValueError, naming the field, for a size that no mesh has."""
        for name in ("fsdp", "context", "tensor"):
            if getattr(self, name) < 1:
                raise ValueError(f"learner.mesh.{name} can't be {getattr(self, name)}: at least 1")

    @property
    def devices(self) -> int:
        """Devices of the mesh."""
        return self.fsdp * self.context * self.tensor
