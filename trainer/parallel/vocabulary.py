"""Embedding and log-probabilities with a vocabulary that is split over the mesh.

Axes: B rows, one for each `fsdp` device, T tokens of a row, d width, V vocabulary. A device holds
V / (cp x tp) ids of d / fsdp numbers. Neither a whole table nor its whole gradient is ever on one.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from patchgym.trainer.losses.logprobs import token_logprobs

from .layout import CONTEXT, FSDP, TENSOR, VOCABULARY, Layout
from .manual import gathered_parts


def embed_tokens(layout: Layout, table: jax.Array, tokens: jax.Array, compute: str) -> jax.Array:
    """Rows of `table` [V, d] for `tokens` [B, T], in the type `compute`: [B, T, d].

    Every device looks all rows up in its part of the table; what it finds is sent to where the
    tokens are. Gradients are added up in the table's type.
    """
    ids = layout.fitting(VOCABULARY, table.shape[0])
    width = layout.fitting((FSDP,), table.shape[1])

    def local(table: jax.Array, tokens: jax.Array) -> jax.Array:
        rows = jax.lax.all_gather(tokens, FSDP, tiled=True)
        place = rows - _first(ids, table.shape[0])
        mine = (place >= 0) & (place < table.shape[0])
        found = jnp.where(mine[..., None], table[jnp.where(mine, place, 0)], 0).astype(compute)
        found = _my_tokens(found, ids)
        if width:
            whole: jax.Array = jax.lax.all_to_all(
                found, FSDP, split_axis=0, concat_axis=2, tiled=True
            )
            return whole
        size = found.shape[0] // layout.size(FSDP)
        return jax.lax.dynamic_slice_in_dim(found, jax.lax.axis_index(FSDP) * size, size)

    where = P(ids or None, width or None), P(FSDP, None)
    look = jax.shard_map(local, mesh=layout.mesh, in_specs=where, out_specs=P(FSDP, CONTEXT, None))
    states: jax.Array = look(table, tokens)
    return states


def _my_tokens(found: jax.Array, ids: tuple[str, ...]) -> jax.Array:
    """Of `found` [B, T, d], added up over the axes that split the ids, this rank's tokens."""
    if TENSOR in ids:
        found = jax.lax.psum(found, TENSOR)
    if CONTEXT in ids:
        mine: jax.Array = jax.lax.psum_scatter(found, CONTEXT, scatter_dimension=1, tiled=True)
        return mine
    size = found.shape[1] // jax.lax.axis_size(CONTEXT)
    return jax.lax.dynamic_slice_in_dim(found, jax.lax.axis_index(CONTEXT) * size, size, axis=1)


def read_logprobs(
    layout: Layout,
    states: jax.Array,
    head: jax.Array,
    readers: jax.Array,
    targets: jax.Array,
    count: jax.Array,
    chunk: int,
    *,
    entropy_slope: bool,
) -> tuple[jax.Array, jax.Array]:
    """`token_logprobs` of rows: states [B, T, d], head [V, d], the others [B, T] and count [B].

    Each device scores all tokens of its row against its part of the vocabulary.
    """
    ids = layout.fitting(VOCABULARY, head.shape[0])
    width = layout.fitting((FSDP,), head.shape[1])
    # Ranks of one row must meet in each piece, and rows wait for each other anyway.
    pieces = jnp.broadcast_to(count.max(), count.shape)

    def local(
        states: jax.Array,
        head: jax.Array,
        readers: jax.Array,
        targets: jax.Array,
        count: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        states = gathered_parts(states, CONTEXT, 1)
        if width:
            head = jax.lax.all_gather(head, FSDP, axis=1, tiled=True)
        one = partial(_one_row, _varying(head, FSDP, CONTEXT, TENSOR), ids, chunk, entropy_slope)
        rows = (_varying(states, CONTEXT, TENSOR), readers, targets, count)
        read: tuple[jax.Array, jax.Array] = jax.lax.map(one, rows)
        return read

    row = P(FSDP, None)
    read = jax.shard_map(
        local,
        mesh=layout.mesh,
        in_specs=(P(FSDP, CONTEXT, None), P(ids or None, width or None), row, row, P(FSDP)),
        out_specs=(row, row),
    )
    found: tuple[jax.Array, jax.Array] = read(states, head, readers, targets, pieces)
    return found


def _one_row(
    head: jax.Array,
    ids: tuple[str, ...],
    chunk: int,
    entropy_slope: bool,
    row: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies [T] of one row; `head` is this rank's ids, [V / n, d]."""
    states, readers, targets, count = row
    found = token_logprobs(
        states[readers],
        head,
        targets - _first(ids, head.shape[0]),
        count,
        chunk,
        entropy_slope=entropy_slope,
        split=ids,
    )
    # Ranks with the same ids computed the same: the mean says so, and shares the gradient out.
    same = tuple(axis for axis in VOCABULARY if axis not in ids)
    logprobs, entropies = jax.lax.pmean(found, same) if same else found
    return logprobs, entropies


def _first(ids: tuple[str, ...], size: int) -> jax.Array | int:
    """The first id of this rank's part of the vocabulary, which has `size`."""
    return jax.lax.axis_index(ids) * size if ids else 0


def _varying(array: jax.Array, *axes: str) -> jax.Array:
    """`array`, of which each rank of `axes` is to have a gradient of its own, added up later."""
    missing = tuple(axis for axis in axes if axis not in jax.typeof(array).manual_axis_type.varying)
    return jax.lax.pcast(array, missing, to="varying") if missing else array
