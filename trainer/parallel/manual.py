"""Pieces of programs that run on each device of a mesh by itself, inside `jax.shard_map`."""

from typing import Any

import jax
import jax.numpy as jnp


def zeros(
    shape: tuple[int, ...],
    kind: Any = jnp.float32,
    *,
    like: jax.Array,
    but: tuple[str, ...] = (),
) -> jax.Array:
    """What sums start from: they vary, as sums must, over the axes of `like` that aren't in `but`.

    Outside of `shard_map`, plain zeros.
    """
    none = jnp.zeros(shape, kind)
    axes = tuple(sorted(jax.typeof(like).manual_axis_type.varying - set(but)))
    return jax.lax.pcast(none, axes, to="varying") if axes else none


def gathered_parts(part: jax.Array, name: str, axis: int) -> jax.Array:
    """The parts that all ranks of `name` have of an array, joined along `axis` in their order.

    They are gathered along a new first axis: the transpose along `axis`, which adds up gradients,
    was compiled to an all-reduce of the whole by libtpu 0.0.42; this one to the reduce-scatter that
    it is.
    """
    parts = jnp.moveaxis(jax.lax.all_gather(part, name), 0, axis)
    return parts.reshape(*part.shape[:axis], -1, *part.shape[axis + 1 :])
