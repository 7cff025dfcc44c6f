"""Whole weights in the first process, of weights that are split over all processes' devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

PIECE_BYTES = 1 << 29
"""Of an array, what every device holds whole at one time."""


def whole(weights: Any, *, keep: bool) -> Any:
    """`weights` as arrays of the host; without `keep` only the other processes' part in it.

    Every process calls it with its part of the same weights. An array is gathered piece by piece
    along its first axis, so that a device needs room for one piece beside its share.
    """
    return jax.tree.map(partial(_whole, keep=keep), weights)


def _whole(array: jax.Array, *, keep: bool) -> np.ndarray | None:
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0)) if keep else None
    result = np.empty(array.shape, array.dtype) if keep else None
    size = max(1, PIECE_BYTES * array.shape[0] // array.nbytes)
    everywhere = NamedSharding(array.sharding.mesh, PartitionSpec())  # type: ignore[attr-defined]
    for start in range(0, array.shape[0], size):
        count = min(size, array.shape[0] - start)
        piece = _piece(everywhere, count)(array, start)
        piece.block_until_ready()
        if result is not None:
            result[start : start + count] = np.asarray(piece.addressable_data(0))
    return result


@cache
def _piece(everywhere: NamedSharding, count: int) -> Callable[[jax.Array, int], jax.Array]:
    def cut(array: jax.Array, start: int) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(array, start, count)

    return jax.jit(cut, out_shardings=everywhere)
