"""Keys and values of a bank, and attention over them.

Axes: R rows of a bank, S tokens of its window, T tokens read in at once; H, K, G, D, L as in
`model.decoder`.

A bank's cache is one pair a layer, keys [R, K, D, S] and values [R, K, S, D], given to each
program and taken back from it in place: both products of attention then run along the last axis.
It is float32 whatever the weights are: XLA on CPU can't write a row of a bfloat16 array without
converting the whole of it twice, and its products of so few rows are no faster.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp

from patchgym.trainer.attention.mask import MASKED
from patchgym.trainer.model.config import ModelConfig

Pair: TypeAlias = tuple[jax.Array, jax.Array]
"""Keys [R, K, D, S] and values [R, K, S, D] of one layer."""

Cache: TypeAlias = list[Pair]
"""A pair a layer."""


def empty_cache(config: ModelConfig, rows: int, window: int) -> Cache:
    """Zeros for a bank of `rows` turns of up to `window` tokens."""
    keys = (rows, config.kv_heads, config.head_dim, window)
    values = (rows, config.kv_heads, window, config.head_dim)
    return [(jnp.zeros(keys), jnp.zeros(values)) for _ in range(config.layers)]


@partial(jax.jit, static_argnums=(1, 2))
def _grown(array: jax.Array, axis: int, window: int) -> jax.Array:
    """`array` with zeros appended along `axis`, up to `window`."""
    added = [(0, 0)] * array.ndim
    added[axis] = (0, window - array.shape[axis])
    return jnp.pad(array, added)


def grow(cache: Cache, window: int) -> Cache:
    """The same cache with room for `window` tokens a turn."""
    return [(_grown(keys, 3, window), _grown(values, 2, window)) for keys, values in cache]


@partial(jax.jit, donate_argnums=0)
def insert(cache: Cache, row: jax.Array, stored: jax.Array) -> Cache:
    """Put `stored` [L, 2, K, S, D] into one row of a bank."""
    place = (row, 0, 0, 0)
    return [
        (
            jax.lax.dynamic_update_slice(keys, stored[i, 0].mT[None], place),
            jax.lax.dynamic_update_slice(values, stored[i, 1][None], place),
        )
        for i, (keys, values) in enumerate(cache)
    ]


@jax.jit
def extract(cache: Cache, row: jax.Array) -> jax.Array:
    """A copy of one row of a bank, [L, 2, K, S, D]."""
    return jnp.stack([jnp.stack([keys.mT, values]) for keys, values in _row_of(cache, row)])


def _row_of(cache: Cache, row: jax.Array) -> Cache:
    """Keys [K, D, S] and values [K, S, D] of one row, a pair a layer."""
    pick = partial(jax.lax.dynamic_index_in_dim, index=row, axis=0, keepdims=False)
    return [(pick(keys), pick(values)) for keys, values in cache]


def read_in(pair: Pair, row: jax.Array, k: jax.Array, v: jax.Array, start: jax.Array) -> Pair:
    """Put keys and values [T, K, D] into one row of a layer, from position `start`."""
    keys, values = pair
    new_keys = k.transpose(1, 2, 0)[None]
    new_values = v.transpose(1, 0, 2)[None]
    return (
        jax.lax.dynamic_update_slice(keys, new_keys, (row, 0, 0, start)),
        jax.lax.dynamic_update_slice(values, new_values, (row, 0, start, 0)),
    )


def write(pair: Pair, k: jax.Array, v: jax.Array, positions: jax.Array) -> Pair:
    """Put one token's keys and values [R, K, D] at `positions` [R] of a layer."""

    def put_key(row: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(row, new[:, :, None], (0, 0, position))

    def put_value(row: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(row, new[:, None], (0, position, 0))

    keys, values = pair
    return jax.vmap(put_key)(keys, k, positions), jax.vmap(put_value)(values, v, positions)


def attend(q: jax.Array, pair: Pair, positions: jax.Array, window: int | None) -> jax.Array:
    """Outputs [R, H*D] of queries [R, H, D] over a layer up to `positions` [R], and no further
    back than its `window`."""
    rows, kv, size, room = pair[0].shape
    hidden = _hidden(window, positions, room)[:, None, None]
    return _mixed(q.reshape(rows, kv, -1, size), pair, hidden).reshape(rows, -1)


def attend_one(
    q: jax.Array, pair: Pair, row: jax.Array, positions: jax.Array, window: int | None
) -> jax.Array:
    """Outputs [T, H*D] of queries [T, H, D] of one row at `positions` [T]; as `attend`."""
    (one,) = _row_of([pair], row)
    kv, size, room = one[0].shape
    length, heads = q.shape[:2]
    hidden = jnp.tile(_hidden(window, positions, room), (heads // kv, 1))
    q = q.reshape(length, kv, -1, size).transpose(1, 2, 0, 3).reshape(kv, -1, size)
    mixed = _mixed(q, one, hidden).reshape(heads, length, size)
    return mixed.transpose(1, 0, 2).reshape(length, -1)


def _mixed(q: jax.Array, pair: Pair, hidden: jax.Array) -> jax.Array:
    """Outputs [..., q, D] of queries [..., q, D] over keys [..., D, S] and values [..., S, D].

    What is `hidden` [..., q, S] has no part. The sum is divided after the product, which is
    smaller then.
    """
    keys, values = pair
    scores = jnp.where(hidden, MASKED, q @ keys)
    mixing = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    total = jnp.sum(mixing, axis=-1, keepdims=True)
    return (mixing @ values) / total


def _hidden(window: int | None, positions: jax.Array, room: int) -> jax.Array:
    """Which of `room` places the tokens at `positions` [B] don't see, [B, S]; `window` is the
    layer's own."""
    place = jnp.arange(room)[None]
    hidden = place > positions[:, None]
    return hidden if window is None else hidden | (place <= positions[:, None] - window)
