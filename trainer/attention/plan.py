"""Which blocks of queries must visit which blocks of keys: made once per step, for all layers.

A row of T tokens is cut into N = ceil(T / block) blocks. Of the N (N + 1) / 2 pairs of blocks that
causal attention has, those in which some query sees some key are listed twice, so that both passes
walk a list without gaps: by query block (outputs and dq), and by key block (dk and dv).

    blocks that see each other     query_block  0  1 1  2 2       key_block    0 0 0  1  2
        key 0 1 2                  its keys     0  0 1  0 2       its queries  0 1 2  1  2
    query 0 x                      query_starts 0  1    3   5     key_starts   0      3  4  5
          1 x x
          2 x . x                  every block sees itself, so that no list is empty

Queries may be a part of the row, and keys may lie in another order than the row's, both in whole
blocks (context.py). The lists then name places in the arrays at hand, and `outer_blocks`,
`inner_blocks` which block of the row lies there. A key block that none of the queries at hand sees
has an empty list.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from .mask import check_ends, pad_row, token_index
from .visits import Visits, list_visits


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """What `attend` visits; a pytree that passes through `jit`, `scan` and `shard_map`."""

    queries: Visits
    """Outer blocks are queries, inner ones the keys that they visit."""
    keys: Visits
    """Outer blocks are keys, inner ones the queries that visit them."""
    block: int = field(metadata={"static": True})
    """Tokens a block."""
    window: int | None = field(metadata={"static": True})
    """The window that the plan was made for."""


def block_plan(
    ends: jax.Array,
    block: int,
    *,
    positions: jax.Array | None = None,
    window: int | None = None,
    query_blocks: jax.Array | None = None,
    key_blocks: jax.Array | None = None,
) -> BlockPlan:
    """The plan of rows with `ends` (and `positions`) [T] or [B, T] int32.

    Takes O(T + N^2) without a window; with one O(T N), since which of a block's keys reach a query
    then depends on the query. Exact for any `ends`: no visible pair is left out, no block is
    visited in vain. Call it inside `jit` next to the layers, or outside once per batch.

    For a part of the row's queries, `query_blocks` [Nq] int32 says which blocks of the row they
    are: different ones, in any order; Nq N - Nq (Nq - 1) / 2 pairs are room enough then. With
    `key_blocks` [N] int32, keys, ends and positions lie in that order of blocks (the values of
    `ends` stay indices in the row), and queries too unless `query_blocks` says otherwise. Both may
    be traced; the row must be whole blocks.

    Raises ValueError for a window without positions, a size below 1, `ends` that no row has, and
    blocks that the row doesn't have.
    """
    if block < 1 or (window is not None and window < 1):
        raise ValueError(f"block={block} and window={window} must be at least 1")
    if window is not None and positions is None:
        raise ValueError("a window needs positions: pass the tokens' depths on their paths")
    queries, keys = _order(ends.shape[-1], block, query_blocks, key_blocks)
    check_ends(ends, None if key_blocks is None else token_index(keys, block))
    ends = jnp.asarray(ends, jnp.int32)
    places = jnp.zeros_like(ends) if positions is None else jnp.asarray(positions, jnp.int32)
    ends, places = pad_row(ends, places, block)

    queries = jnp.broadcast_to(queries, (*ends.shape[:-1], *queries.shape))
    keys = jnp.broadcast_to(keys, (*ends.shape[:-1], *keys.shape))
    own = places if window is None else _chosen(places, queries, keys, block)
    by_query, by_key = list_visits(ends, (own, places), queries, keys, block, window)
    return BlockPlan(queries=by_query, keys=by_key, block=block, window=window)


def visited_blocks(plan: BlockPlan) -> jax.Array:
    """Pairs of blocks that the plan visits [...] int32; causal attention visits N (N + 1) / 2."""
    return plan.queries.starts[..., -1]


def positions_of_queries(positions: jax.Array, plan: BlockPlan) -> jax.Array:
    """Of `positions` [B, T], which lie as the keys do, those of the plan's queries: [B, Tq]."""
    return _chosen(positions, plan.queries.outer_blocks, plan.keys.outer_blocks, plan.block)


def _chosen(positions: jax.Array, queries: jax.Array, keys: jax.Array, block: int) -> jax.Array:
    """`positions` [..., T] of blocks `keys` [..., N] at those of `queries` [..., Nq]."""
    by_block = positions.reshape(*keys.shape, block)
    places = jnp.take_along_axis(jnp.argsort(keys, axis=-1), queries, axis=-1)
    chosen = jnp.take_along_axis(by_block, places[..., None], axis=-2)
    return chosen.reshape(*queries.shape[:-1], -1)


def _order(
    length: int, block: int, query_blocks: jax.Array | None, key_blocks: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Which block of the row each block of queries [Nq] and of keys [N] is."""
    count = -(-length // block)
    if length % block and not (query_blocks is None and key_blocks is None):
        raise ValueError(
            f"{length} tokens are not whole blocks of {block}: pad the row to {count * block} to "
            "name blocks of it"
        )
    keys = jnp.arange(count, dtype=jnp.int32)
    if key_blocks is not None:
        keys = _checked("key_blocks", key_blocks, count)
        if keys.size != count:
            raise ValueError(f"key_blocks names {keys.size} blocks, but keys are all {count}")
    queries = keys if query_blocks is None else _checked("query_blocks", query_blocks, count)
    return queries, keys


def _checked(name: str, blocks: jax.Array, count: int) -> jax.Array:
    """`blocks` [n] int32. Raise ValueError unless they are different ones of `count`."""
    if jnp.ndim(blocks) != 1 or not 1 <= jnp.size(blocks) <= count:
        raise ValueError(
            f"{name} must be a list of 1 to {count} blocks, not of shape {jnp.shape(blocks)}"
        )
    if not isinstance(blocks, Tracer):
        values = np.asarray(blocks).tolist()
        if len(set(values) & set(range(count))) < len(values):
            raise ValueError(f"{name}={values} must be different numbers from 0 to {count - 1}")
    return jnp.asarray(blocks, jnp.int32)
