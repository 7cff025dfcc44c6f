"""Keys and values of a bank, and attention over them.

Axes: R rows of a bank, S tokens of its window, T tokens read in at once; H, K, G, D, L as in
`model.decoder`.

A bank's cache is one pair a layer, keys and values [R, K, S, D], given to each program and taken
back from it in place. It is float32; where the weights are bfloat16 and the kernel of
`native_attention` reads it, it is bfloat16 as uint16, since XLA on CPU can't write a row of a
bfloat16 array without converting the whole of it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp

from patchgym.trainer.attention.mask import MASKED
from patchgym.trainer.model.config import ModelConfig

from .native_attention import attend_native, serves

Pair: TypeAlias = tuple[jax.Array, jax.Array]
"""Keys and values [R, K, S, D] of one layer."""

Cache: TypeAlias = list[Pair]
"""A pair a layer."""


def empty_cache(config: ModelConfig, rows: int, window: int, dtype: str = "float32") -> Cache:
    """Zeros for a bank of `rows` turns of up to `window` tokens; `dtype` as `cache_dtype` says."""
    shape = (rows, config.kv_heads, window, config.head_dim)
    return [(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(config.layers)]


def cache_dtype(config: ModelConfig, weights: str) -> str:
    """What the caches of a sampler with `weights` of that type are made of."""
    return "uint16" if weights == "bfloat16" and serves(config) else "float32"


@partial(jax.jit, static_argnums=1)
def _grown(array: jax.Array, window: int) -> jax.Array:
    """`array` [R, K, S, D] with zeros appended, up to `window` places."""
    return jnp.pad(array, ((0, 0), (0, 0), (0, window - array.shape[2]), (0, 0)))


def grow(cache: Cache, window: int) -> Cache:
    """The same cache with room for `window` tokens a turn."""
    return [(_grown(keys, window), _grown(values, window)) for keys, values in cache]


@partial(jax.jit, donate_argnums=0)
def insert(cache: Cache, row: jax.Array, stored: jax.Array) -> Cache:
    """Put `stored` [L, 2, K, S, D] into one row of a bank."""
    place = (row, 0, 0, 0)
    return [
        (
            jax.lax.dynamic_update_slice(keys, stored[i, 0][None], place),
            jax.lax.dynamic_update_slice(values, stored[i, 1][None], place),
        )
        for i, (keys, values) in enumerate(cache)
    ]


@jax.jit
def extract(cache: Cache, row: jax.Array) -> jax.Array:
    """A copy of one row of a bank, [L, 2, K, S, D], in the cache's type."""
    return jnp.stack([jnp.stack(pair) for pair in _row_of(cache, row)])


def _row_of(cache: Cache, row: jax.Array) -> Cache:
    """Keys and values [K, S, D] of one row, a pair a layer."""
    pick = partial(jax.lax.dynamic_index_in_dim, index=row, axis=0, keepdims=False)
    return [(pick(keys), pick(values)) for keys, values in cache]


def _narrow(x: jax.Array, like: jax.Array) -> jax.Array:
    """Numbers as the cache `like` holds them."""
    if like.dtype != jnp.uint16:
        return x
    return jax.lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16)


def _wide(held: jax.Array) -> jax.Array:
    """What a cache holds, as float32."""
    if held.dtype != jnp.uint16:
        return held
    return jax.lax.bitcast_convert_type(held, jnp.bfloat16).astype(jnp.float32)


def read_in(pair: Pair, row: jax.Array, k: jax.Array, v: jax.Array, start: jax.Array) -> Pair:
    """Put keys and values [T, K, D] into one row of a layer, from position `start`."""
    keys, values = pair
    place = (row, 0, start, 0)
    new_keys, new_values = (_narrow(new.transpose(1, 0, 2)[None], keys) for new in (k, v))
    return (
        jax.lax.dynamic_update_slice(keys, new_keys, place),
        jax.lax.dynamic_update_slice(values, new_values, place),
    )


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    pairs: Sequence[Pair],
    positions: jax.Array,
    window: int | None,
    *,
    native: bool,
) -> tuple[jax.Array, list[Pair]]:
    """Read one token a turn into a layer, and look back from it.

    `q` [B, H, D], `k` and `v` [B, K, D] of tokens at `positions` [B], which see what is before
    them and no further back than the layer's `window`; `pairs` are the banks', B their rows in all.
    Returns outputs [B, H*D] and the pairs as they are then. `native`: by the kernel in C.
    """
    if native:
        return attend_native(q, k, v, pairs, positions, window)
    rows = pairs[0][0].shape[0]
    mixed, written = [], []
    for bank, pair in enumerate(pairs):
        own = slice(bank * rows, (bank + 1) * rows)
        pair = _write(pair, k[own], v[own], positions[own])
        written.append(pair)
        mixed.append(_look_back(q[own], pair, positions[own], window))
    return jnp.concatenate(mixed), written


def _write(pair: Pair, k: jax.Array, v: jax.Array, positions: jax.Array) -> Pair:
    """Put one token's keys and values [R, K, D] at `positions` [R] of a layer."""

    def put(row: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(row, new[:, None], (0, position, 0))

    keys, values = pair
    return jax.vmap(put)(keys, k, positions), jax.vmap(put)(values, v, positions)


def _look_back(q: jax.Array, pair: Pair, positions: jax.Array, window: int | None) -> jax.Array:
    """Outputs [R, H*D] of queries [R, H, D] over a layer up to `positions` [R]."""
    rows, kv, room, size = pair[0].shape
    hidden = _hidden(window, positions, room)[:, None, None]
    return _mixed(q.reshape(rows, kv, -1, size), pair, hidden).reshape(rows, -1)


def attend_one(
    q: jax.Array, pair: Pair, row: jax.Array, positions: jax.Array, window: int | None
) -> jax.Array:
    """Outputs [T, H*D] of queries [T, H, D] of one row at `positions` [T]; as `attend`."""
    ((keys, values),) = _row_of([pair], row)
    one = _wide(keys), _wide(values)
    kv, room, size = one[0].shape
    length, heads = q.shape[:2]
    hidden = jnp.tile(_hidden(window, positions, room), (heads // kv, 1))
    q = q.reshape(length, kv, -1, size).transpose(1, 2, 0, 3).reshape(kv, -1, size)
    mixed = _mixed(q, one, hidden).reshape(heads, length, size)
    return mixed.transpose(1, 0, 2).reshape(length, -1)


def _mixed(q: jax.Array, pair: Pair, hidden: jax.Array) -> jax.Array:
    """Outputs [..., q, D] of queries [..., q, D] over keys and values [..., S, D].

    What is `hidden` [..., q, S] has no part. The sum is divided after the product, which is
    smaller then.
    """
    keys, values = pair
    scores = jnp.where(hidden, MASKED, q @ keys.mT)
    mixing = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    total = jnp.sum(mixing, axis=-1, keepdims=True)
    return (mixing @ values) / total


def _hidden(window: int | None, positions: jax.Array, room: int) -> jax.Array:
    """Which of `room` places the tokens at `positions` [B] don't see, [B, S]; `window` is the
    layer's own."""
    place = jnp.arange(room)[None]
    hidden = place > positions[:, None]
    return hidden if window is None else hidden | (place <= positions[:, None] - window)
