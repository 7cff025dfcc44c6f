"""The compiled programs of the sampler: weights laid out, a prompt read in, tokens sampled.

Axes: B turns of a launch, R rows of a bank (B = banks x R), T tokens read in at once, S tokens of
a bank's window, N steps of a launch; d, H, K, G, D, V as in `model.decoder`.

A bank's cache is one pair a layer, keys [R, K, D, S] and values [R, K, S, D], given to each
program and taken back from it in place: both products of attention then run along the last axis.
That, two-dimensional activations, matrices that lie [out, in], and layers that are not stacked are
what makes decoding fast on CPU: a stacked layer or a strided operand is copied before each product.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from patchgym.trainer.attention.mask import MASKED
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params, head_weight
from patchgym.trainer.model.layers import (
    Turn,
    embedded,
    gated,
    heads_of,
    joined,
    normed,
    rotary_table,
)

Weights: TypeAlias = dict[str, Any]
"""Weights laid out for sampling, by `lay_out`."""

Cache: TypeAlias = list[tuple[jax.Array, jax.Array]]
"""Keys [R, K, D, S] and values [R, K, S, D] of one bank, a pair a layer."""

MATRICES = ("query", "key", "value", "output", "gate", "up", "down")
"""What a layer multiplies by."""


@partial(jax.jit, static_argnums=0)
def lay_out(config: ModelConfig, params: Params) -> Weights:
    """A copy of `params` with one entry a layer.

    Matrices are turned to [out, in], as the embedding lies already: a product of few rows is a
    fifth faster so. Nothing is fused: that gains nothing.
    """
    layers = params["layers"]
    # `copy`, since a program that returns its argument as it is shares the buffer.
    laid: Weights = {key: jnp.copy(array) for key, array in params.items() if key != "layers"}
    laid["layers"] = [
        {name: stacked[i].T if name in MATRICES else stacked[i] for name, stacked in layers.items()}
        for i in range(config.layers)
    ]
    return laid


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
    pick = partial(jax.lax.dynamic_index_in_dim, index=row, axis=0, keepdims=False)
    return jnp.stack([jnp.stack([pick(keys).mT, pick(values)]) for keys, values in cache])


def _project(
    config: ModelConfig, layer: Weights, x: jax.Array, turn: Turn
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rotated, scaled queries [B, H, D], rotated keys and values [B, K, D] of `x` [B, d]."""
    h = normed(config, x, layer["attention_norm"])
    products = (h @ layer["query"].T, h @ layer["key"].T, h @ layer["value"].T)
    return heads_of(config, layer, products, turn)


def _rest(config: ModelConfig, layer: Weights, x: jax.Array, mixed: jax.Array) -> jax.Array:
    """One layer from attention's outputs `mixed` [B, H*D] on, residuals included; `x` [B, d]."""
    x += joined(config, layer, "attention", mixed @ layer["output"].T)
    h = normed(config, x, layer["mlp_norm"])
    inside = gated(config, h @ layer["gate"].T, h @ layer["up"].T)
    x += joined(config, layer, "mlp", inside @ layer["down"].T)
    return x


def _turns(config: ModelConfig, positions: jax.Array) -> list[Turn]:
    """For each layer the rotation of the tokens at `positions` [B]."""
    whole = rotary_table(config, positions)
    near = rotary_table(config, positions, local=True) if config.windowed else whole
    return [near if windowed else whole for windowed in _windowed(config)]


def _windowed(config: ModelConfig) -> tuple[bool, ...]:
    """For each layer whether it sees only a window."""
    return config.windowed or (False,) * config.layers


def _hidden(window: int | None, positions: jax.Array, room: int) -> jax.Array:
    """Which of `room` places the tokens at `positions` [B] don't see, [B, S]; `window` is the
    layer's own."""
    place = jnp.arange(room)[None]
    hidden = place > positions[:, None]
    return hidden if window is None else hidden | (place <= positions[:, None] - window)


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def prefill(
    config: ModelConfig,
    weights: Weights,
    cache: Cache,
    row: jax.Array,
    tokens: jax.Array,
    start: jax.Array,
) -> Cache:
    """Read `tokens` [T] at positions from `start` into one row, after what it holds already.

    `start + T` must not pass the window. Tokens past the real ones are padding: what they leave
    behind lies after the real ones, which never see it, and is overwritten by decoding.
    """
    length, kv, size = tokens.shape[0], config.kv_heads, config.head_dim
    positions = start + jnp.arange(length, dtype=jnp.int32)
    turns, windowed = _turns(config, positions), _windowed(config)
    x = embedded(config, weights["embed"], tokens)
    filled: Cache = []
    for i, (layer, (keys, values)) in enumerate(zip(weights["layers"], cache, strict=True)):
        q, k, v = _project(config, layer, x, turns[i])
        keys = jax.lax.dynamic_update_slice(keys, k.transpose(1, 2, 0)[None], (row, 0, 0, start))
        values = jax.lax.dynamic_update_slice(
            values, v.transpose(1, 0, 2)[None], (row, 0, start, 0)
        )
        filled.append((keys, values))
        past_k = jax.lax.dynamic_index_in_dim(keys, row, axis=0, keepdims=False)
        past_v = jax.lax.dynamic_index_in_dim(values, row, axis=0, keepdims=False)
        window = past_k.shape[2]
        hidden = _hidden(config.window if windowed[i] else None, positions, window)
        q = q.reshape(length, kv, -1, size).transpose(1, 2, 0, 3).reshape(kv, -1, size)
        scores = jnp.einsum("kqd,kds->kqs", q, past_k).reshape(kv, -1, length, window)
        mixing = jax.nn.softmax(jnp.where(hidden, MASKED, scores), axis=-1)
        mixed = jnp.einsum("kqs,ksd->kqd", mixing.reshape(kv, -1, window), past_v)
        mixed = mixed.reshape(config.heads, length, size).transpose(1, 0, 2)
        x = _rest(config, layer, x, mixed.reshape(length, -1))
    return filled


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def decode(
    config: ModelConfig,
    weights: Weights,
    caches: list[Cache],
    tokens: jax.Array,
    positions: jax.Array,
    draws: jax.Array,
    temperatures: jax.Array,
) -> tuple[list[Cache], jax.Array, jax.Array]:
    """Sample N tokens for each turn of some banks of the same window.

    `tokens` [B] are read in at `positions` [B] first; `draws` [N, B] in [0, 1) decide;
    `temperatures` [B], 0 takes the most likely token. Returns the caches, the sampled tokens
    [N, B], and their logprobs [N, B] under the distribution sampled from.
    """

    def step(carry: Any, draw: jax.Array) -> Any:
        caches, tokens, positions = carry
        caches, logits = _advance(config, weights, caches, tokens, positions)
        sampled, logprobs = choose(logits, draw, temperatures)
        return (caches, sampled, positions + 1), (sampled, logprobs)

    carry, (sampled, logprobs) = jax.lax.scan(step, (caches, tokens, positions), draws)
    return carry[0], sampled, logprobs


def _advance(
    config: ModelConfig,
    weights: Weights,
    caches: list[Cache],
    tokens: jax.Array,
    positions: jax.Array,
) -> tuple[list[Cache], jax.Array]:
    """Read one token [B] a turn into the caches; logits [B, V] of the next."""
    turns, windowed = _turns(config, positions), _windowed(config)
    by_bank = positions.reshape(len(caches), -1)
    x = embedded(config, weights["embed"], tokens)
    advanced: list[Cache] = [[] for _ in caches]
    for i, layer in enumerate(weights["layers"]):
        q, k, v = _project(config, layer, x, turns[i])
        window = config.window if windowed[i] else None
        mixed = []
        for bank, cache in enumerate(caches):
            rows = slice(bank * by_bank.shape[1], (bank + 1) * by_bank.shape[1])
            pair = _write(cache[i], k[rows], v[rows], by_bank[bank])
            advanced[bank].append(pair)
            mixed.append(_attend(q[rows], *pair, by_bank[bank], window))
        x = _rest(config, layer, x, jnp.concatenate(mixed))
    hidden = normed(config, x, weights["norm"])
    return advanced, hidden @ head_weight(config, weights)


def _write(
    pair: tuple[jax.Array, jax.Array], k: jax.Array, v: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Put one token's keys and values [R, K, D] at `positions` [R] of a bank's layer."""

    def put_key(row: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(row, new[:, :, None], (0, 0, position))

    def put_value(row: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(row, new[:, None], (0, position, 0))

    keys, values = pair
    return jax.vmap(put_key)(keys, k, positions), jax.vmap(put_value)(values, v, positions)


def _attend(
    q: jax.Array, keys: jax.Array, values: jax.Array, positions: jax.Array, window: int | None
) -> jax.Array:
    """Outputs [R, H*D] of queries [R, H, D] over a bank's layer up to `positions` [R], and no
    further back than its `window`."""
    rows, kv, size, room = keys.shape
    grouped = q.reshape(rows, kv, -1, size)
    hidden = _hidden(window, positions, room)
    scores = jnp.einsum("rkgd,rkds->rkgs", grouped, keys)
    mixing = jax.nn.softmax(jnp.where(hidden[:, None, None], MASKED, scores), axis=-1)
    return jnp.einsum("rkgs,rksd->rkgd", mixing, values).reshape(rows, -1)


_BLOCK = 128
"""Vocabulary entries that are summed at once when a draw is looked up."""


def choose(
    logits: jax.Array, draws: jax.Array, temperatures: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Tokens [B] and their logprobs for `logits` [B, V] and `draws` [B], by inverse CDF.

    The cumulative sum is looked up in two levels, blocks first, which is several times faster
    than one sum over the vocabulary. At temperature 0 the likeliest token has logprob 0.
    """
    greedy = temperatures <= 0
    scaled = logits / jnp.where(greedy, 1.0, temperatures)[:, None]
    top = jnp.max(scaled, axis=-1, keepdims=True)
    weights = jnp.exp(scaled - top)
    pad = -weights.shape[1] % _BLOCK
    blocks = jnp.pad(weights, ((0, 0), (0, pad))).reshape(weights.shape[0], -1, _BLOCK)
    ends = jnp.cumsum(jnp.sum(blocks, axis=-1), axis=-1)
    total = ends[:, -1:]
    target = draws[:, None] * total
    block = jnp.minimum(jnp.sum(ends <= target, axis=-1), ends.shape[1] - 1)[:, None]
    before = jnp.where(block > 0, jnp.take_along_axis(ends, jnp.maximum(block - 1, 0), 1), 0.0)
    inside = jnp.cumsum(jnp.take_along_axis(blocks, block[:, :, None], 1)[:, 0], axis=-1)
    place = jnp.sum(inside <= target - before, axis=-1)
    # Rounding can leave the target past the block's last entry that has any weight.
    last = jnp.sum(inside < inside[:, -1:], axis=-1)
    drawn = block[:, 0] * _BLOCK + jnp.minimum(place, last)
    tokens = jnp.where(greedy, jnp.argmax(logits, axis=-1), drawn).astype(jnp.int32)
    picked = jnp.take_along_axis(scaled, tokens[:, None], 1)
    logprobs = (picked - top - jnp.log(total))[:, 0]
    return tokens, jnp.where(greedy, 0.0, logprobs)
