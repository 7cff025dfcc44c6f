"""Lists of the pairs of blocks that see each other: O(T + N^2), or O(T N) with a window.

Axes: T tokens in Nk blocks of keys, Nq blocks of queries, n tokens a block.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Pairs of blocks in order of `outer`, then `inner`: N outer blocks, M inner ones.

    The capacity P is the most that causal attention needs: `capacity(Nq, Nk)`.
    """

    outer: jax.Array
    """[..., P] int32 places; entries past the last pair repeat it."""
    inner: jax.Array
    """[..., P] int32 places; likewise."""
    starts: jax.Array
    """[..., N + 1] int32: the pairs of outer place i are `starts[i]` to `starts[i + 1]`."""
    outer_blocks: jax.Array
    """[..., N] int32: which block of the row lies at each outer place."""
    inner_blocks: jax.Array
    """[..., M] int32: which block of the row lies at each inner place."""


def capacity(queries: int, keys: int) -> int:
    """The most pairs that any `queries` different blocks of a causal row of `keys` blocks have."""
    return queries * keys - queries * (queries - 1) // 2


@partial(jax.jit, static_argnums=(4, 5))
def list_visits(
    ends: jax.Array,
    positions: tuple[jax.Array, jax.Array],
    query_blocks: jax.Array,
    key_blocks: jax.Array,
    block: int,
    window: int | None,
) -> tuple[Visits, Visits]:
    """Visits by query block, and by key block, of whole blocks.

    `ends` [..., T] of the keys, `positions` of the queries [..., Tq] and of the keys [..., T],
    `query_blocks` [..., Nq], `key_blocks` [..., Nk], all int32. Positions are read for a window.
    """

    def row(
        ends: jax.Array,
        positions: tuple[jax.Array, jax.Array],
        queries: jax.Array,
        keys: jax.Array,
    ) -> tuple[Visits, Visits]:
        live = _live(ends, positions, queries, keys, block, window)
        return _visits(live, queries, keys), _visits(live.T, keys, queries)

    given = (ends, positions, query_blocks, key_blocks)
    return (row if ends.ndim == 1 else jax.vmap(row))(*given)


def _live(
    ends: jax.Array,
    positions: tuple[jax.Array, jax.Array],
    queries: jax.Array,
    keys: jax.Array,
    block: int,
    window: int | None,
) -> jax.Array:
    """[Nq, Nk] bool: true where some query of the one block sees some key of the other."""
    first = queries[:, None] * block
    if window is None:
        # Of a later block, the first query is the one that most keys still reach.
        reached = ends.reshape(-1, block).max(axis=1)[None, :] > first
    else:
        reached = _reached_within(ends, positions, first, block, window)
    before = keys[None, :] < queries[:, None]
    return (before & reached) | (keys[None, :] == queries[:, None])


def _reached_within(
    ends: jax.Array,
    positions: tuple[jax.Array, jax.Array],
    first: jax.Array,
    block: int,
    window: int,
) -> jax.Array:
    """[Nq, Nk] bool: true where some key reaches, within `window`, a query of a later block.

    `first` [Nq, 1] is the index of each block's first query. Key k reaches the queries of a block
    up to `ends[k]`; the one at the least depth decides.
    """
    of_queries, of_keys = positions
    least = jax.lax.cummin(of_queries.reshape(-1, block), axis=1)
    last = ends[None, :] - 1 - first  # [Nq, T]
    nearest = jnp.take_along_axis(least, jnp.clip(last, 0, block - 1), axis=1)
    reached = (last >= 0) & (nearest - of_keys[None, :] < window)
    return reached.reshape(first.shape[0], -1, block).any(axis=2)


def _visits(live: jax.Array, outer: jax.Array, inner: jax.Array) -> Visits:
    """The true entries of `live` [N, M] as a list, in row-major order.

    `outer` [N] and `inner` [M] are the blocks of the row.
    """
    count, width = live.shape
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(live.sum(axis=1))])
    size = capacity(min(count, width), max(count, width))
    (pairs,) = jnp.nonzero(live.ravel(), size=size)
    pairs = pairs[jnp.minimum(jnp.arange(size), starts[-1] - 1)]
    return Visits(
        outer=(pairs // width).astype(jnp.int32),
        inner=(pairs % width).astype(jnp.int32),
        starts=starts.astype(jnp.int32),
        outer_blocks=outer,
        inner_blocks=inner,
    )
