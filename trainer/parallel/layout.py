"""Where weights and activations lie on a mesh.

Axes of the mesh: `fsdp` splits rows, `cp` the tokens of a row, `tp` matrices and heads. Axes of
arrays as in `model.decoder`. What each weight is split over:

    query, key, value, gate, up [L, d, out]     d over fsdp and cp, out over tp
    output, down [L, in, d]                     in over tp, fsdp and cp
    embed [V, d] · head [d, V]                  V over cp and tp, d over fsdp
    biases [L, out] · norms                     out over tp · nowhere
    adapters A [L, in, r] · B [L, r, out]       in · out over fsdp and cp

An axis that does not divide a dimension is left out there: the weight is whole along it. Gradients
and the optimizer's moments lie as their weights do (ZeRO, Rajbhandari et al. 2020,
arXiv:1910.02054). Each layer's matrices are gathered when they are needed, forward and backward.
The first axis of a matrix is the one that is split: along its last, the sum of gradients over the
mesh was compiled to an all-reduce of the whole by libtpu 0.0.42, not to a reduce-scatter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .config import MeshConfig

FSDP, CONTEXT, TENSOR = "fsdp", "cp", "tp"
SHARDS = (FSDP, CONTEXT)
VOCABULARY = (CONTEXT, TENSOR)

Axes = tuple[tuple[str, ...], ...]
"""For each dimension of an array, the mesh's axes that split it."""

_COLUMNS: Axes = ((), SHARDS, (TENSOR,))
_ROWS: Axes = ((), (TENSOR, *SHARDS), ())
_WEIGHTS: dict[str, Axes] = {
    **dict.fromkeys(("query", "key", "value", "gate", "up"), _COLUMNS),
    **dict.fromkeys(("output", "down"), _ROWS),
    **dict.fromkeys(("query_bias", "key_bias", "value_bias"), ((), (TENSOR,))),
    "embed": (VOCABULARY, (FSDP,)),
    "head": ((FSDP,), VOCABULARY),
    "A": ((), SHARDS, ()),
    "B": ((), (), SHARDS),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A mesh, and what lies where on it. Hashable, so that it can be a static argument of `jit`."""

    mesh: Mesh | AbstractMesh
    """Axes `fsdp`, `cp`, `tp`, all of type Auto."""

    def size(self, *axes: str) -> int:
        """Devices along `axes` together."""
        return math.prod(self.mesh.shape[axis] for axis in axes)

    def fitting(self, axes: Sequence[str], length: int) -> tuple[str, ...]:
        """The leading ones of `axes` that together divide `length`."""
        kept: tuple[str, ...] = ()
        for axis in axes:
            if length % self.size(*kept, axis):
                break
            kept = (*kept, axis)
        return kept

    def weight(self, name: str, shape: Sequence[int]) -> P:
        """How the weight `name` of `shape` is split; without the leading L for a single layer."""
        axes = _WEIGHTS.get(name, ())
        axes = axes[len(axes) - len(shape) :] if len(axes) > len(shape) else axes
        return P(*(self.fitting(one, size) or None for one, size in zip(axes, shape, strict=False)))

    def gathered_weight(self, name: str, shape: Sequence[int]) -> P:
        """How it lies when it is multiplied: whole but for `tp`."""
        spec = self.weight(name, shape)
        return P(*(TENSOR if axes is not None and TENSOR in axes else None for axes in spec))

    def sharding(self, *spec: Any) -> NamedSharding:
        """`spec` on this mesh."""
        return NamedSharding(self.mesh, P(*spec))

    def constrain(self, array: jax.Array, *spec: Any) -> jax.Array:
        """`array`, which lies as `spec` says."""
        lies: jax.Array = jax.lax.with_sharding_constraint(array, self.sharding(*spec))
        return lies

    def shardings(self, weights: Any) -> Any:
        """The sharding of each weight in nested dicts of arrays or of their shapes."""
        return jax.tree_util.tree_map_with_path(self._of_path, weights)

    def _of_path(self, path: tuple[Any, ...], array: Any) -> NamedSharding:
        return NamedSharding(self.mesh, self.weight(str(path[-1].key), array.shape))

    def constrain_weights(self, weights: Any) -> Any:
        """`weights`, or gradients like them, each lying where it belongs."""
        return jax.tree.map(jax.lax.with_sharding_constraint, weights, self.shardings(weights))

    def place(self, weights: Any) -> Any:
        """`weights` on the mesh's devices. In several processes each hands over the same values."""
        return jax.tree.map(jax.device_put, weights, self.shardings(weights))

    def whole(self, array: Any) -> Any:
        """`array`, the same on every device."""
        return jax.lax.with_sharding_constraint(array, self.sharding())


def make_layout(config: MeshConfig, devices: Sequence[Any] | None = None) -> Layout:
    """A layout over `devices`, by default all there are, in the order of their interconnect.

    Raises ValueError when there are fewer or more than `config` names.
    """
    from jax.experimental import mesh_utils

    found = jax.devices() if devices is None else list(devices)
    if len(found) != config.devices:
        raise ValueError(
            f"learner.mesh is {config.fsdp} x {config.context} x {config.tensor} (fsdp, context, "
            f"tensor), which are {config.devices} devices; there are {len(found)}: change its sizes"
        )
    shape = config.fsdp, config.context, config.tensor
    if found[0].platform == "tpu":
        grid = mesh_utils.create_device_mesh(shape, found)
    else:
        grid = np.asarray(found).reshape(shape)
    return Layout(Mesh(grid, (FSDP, CONTEXT, TENSOR)))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def gathered(layout: Layout, name: str, weight: jax.Array) -> jax.Array:
    """One layer's `weight` as it is multiplied.

    Its gradient is added up over the mesh and split at once.
    """
    return layout.constrain(weight, *layout.gathered_weight(name, weight.shape))


def _gathered(layout: Layout, name: str, weight: jax.Array) -> tuple[jax.Array, None]:
    return gathered(layout, name, weight), None


def _scattered(layout: Layout, name: str, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    return (layout.constrain(gradient, *layout.weight(name, gradient.shape)),)


gathered.defvjp(_gathered, _scattered)
