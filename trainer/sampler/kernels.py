"""The compiled programs of the sampler: weights laid out, a prompt read in, tokens sampled.

Axes: B turns of a launch, R rows of a bank (B = banks x R), T tokens read in at once, S tokens of
a bank's window, N steps of a launch; d, H, K, G, D, V as in `model.decoder`.

A bank's cache is one pair (keys, values) of [R, K, S, D] arrays a layer, given to each program
and taken back from it in place. On CPU this layout, two-dimensional activations and layers that
are not stacked are what makes decoding fast: a stacked layer or a strided operand is copied
before each product.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import (
    MASKED,
    Params,
    head_weight,
    rms_norm,
    rotary_table,
    rotate,
)

Weights: TypeAlias = dict[str, Any]
"""Weights laid out for sampling, by `lay_out`."""

Cache: TypeAlias = list[tuple[jax.Array, jax.Array]]
"""Keys and values of one bank, a pair of [R, K, S, D] a layer."""


@partial(jax.jit, static_argnums=0)
def lay_out(config: ModelConfig, params: Params) -> Weights:
    """A copy of `params` with one entry a layer.

    Nothing is fused or transposed: products of few rows are as fast without it, the embedding is
    even faster as a head when it is left as it lies, and the copy takes a seventh of the time.
    """
    layers = params["layers"]
    # `copy`, since a program that returns its argument as it is shares the buffer.
    laid: Weights = {key: jnp.copy(array) for key, array in params.items() if key != "layers"}
    laid["layers"] = [
        {name: stacked[i] for name, stacked in layers.items()} for i in range(config.layers)
    ]
    return laid


def empty_cache(config: ModelConfig, rows: int, window: int) -> Cache:
    """Zeros for a bank of `rows` turns of up to `window` tokens."""
    shape = (rows, config.kv_heads, window, config.head_dim)
    return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(config.layers)]


@partial(jax.jit, static_argnums=1)
def _grown(array: jax.Array, window: int) -> jax.Array:
    """`array` [R, K, S, D] with zeros appended along S."""
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
    """A copy of one row of a bank, [L, 2, K, S, D]."""
    pick = partial(jax.lax.dynamic_index_in_dim, index=row, axis=0, keepdims=False)
    return jnp.stack([jnp.stack([pick(keys), pick(values)]) for keys, values in cache])


def _project(
    config: ModelConfig, layer: Weights, x: jax.Array, turn: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rotated, scaled queries [B, H, D], rotated keys and values [B, K, D] of `x` [B, d]."""
    h, size = rms_norm(x, layer["attention_norm"], config.eps), config.head_dim
    q, k, v = ((h @ layer[name]).reshape(len(x), -1, size) for name in ("query", "key", "value"))
    return rotate(q * (1 / math.sqrt(size)), *turn), rotate(k, *turn), v


def _mlp(config: ModelConfig, layer: Weights, x: jax.Array) -> jax.Array:
    """The gated feed-forward block of one layer, residual included; `x` [B, d]."""
    h = rms_norm(x, layer["mlp_norm"], config.eps)
    x += (jax.nn.silu(h @ layer["gate"]) * (h @ layer["up"])) @ layer["down"]
    return x


def _rotation(config: ModelConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Tables [B, 1, D/2] that turn all heads of the tokens at `positions` [B]."""
    cosine, sine = rotary_table(config, positions)
    return cosine[:, None], sine[:, None]


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
    turn = _rotation(config, positions)
    x = weights["embed"][tokens]
    filled: Cache = []
    for layer, (keys, values) in zip(weights["layers"], cache, strict=True):
        q, k, v = _project(config, layer, x, turn)
        place = (row, 0, start, 0)
        keys = jax.lax.dynamic_update_slice(keys, k.transpose(1, 0, 2)[None], place)
        values = jax.lax.dynamic_update_slice(values, v.transpose(1, 0, 2)[None], place)
        filled.append((keys, values))
        past_k = jax.lax.dynamic_index_in_dim(keys, row, axis=0, keepdims=False)
        past_v = jax.lax.dynamic_index_in_dim(values, row, axis=0, keepdims=False)
        window = past_k.shape[1]
        hidden = jnp.arange(window)[None] > positions[:, None]
        q = q.reshape(length, kv, -1, size).transpose(1, 2, 0, 3).reshape(kv, -1, size)
        scores = jnp.einsum("kqd,ksd->kqs", q, past_k).reshape(kv, -1, length, window)
        mixing = jax.nn.softmax(jnp.where(hidden, MASKED, scores), axis=-1)
        mixed = jnp.einsum("kqs,ksd->kqd", mixing.reshape(kv, -1, window), past_v)
        mixed = mixed.reshape(config.heads, length, size).transpose(1, 0, 2)
        x += mixed.reshape(length, -1) @ layer["output"]
        x = _mlp(config, layer, x)
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
    turn = _rotation(config, positions)
    by_bank = positions.reshape(len(caches), -1)
    x = weights["embed"][tokens]
    advanced: list[Cache] = [[] for _ in caches]
    for i, layer in enumerate(weights["layers"]):
        q, k, v = _project(config, layer, x, turn)
        mixed = []
        for bank, cache in enumerate(caches):
            rows = slice(bank * by_bank.shape[1], (bank + 1) * by_bank.shape[1])
            pair = _write(cache[i], k[rows], v[rows], by_bank[bank])
            advanced[bank].append(pair)
            mixed.append(_attend(q[rows], *pair, by_bank[bank]))
        x += jnp.concatenate(mixed) @ layer["output"]
        x = _mlp(config, layer, x)
    hidden = rms_norm(x, weights["norm"], config.eps)
    return advanced, hidden @ head_weight(config, weights)


def _write(
    pair: tuple[jax.Array, jax.Array], k: jax.Array, v: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Put one token's keys and values [R, K, D] at `positions` [R] of a bank's layer."""

    def put(row: jax.Array, new: jax.Array, position: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(row, new[:, None], (0, position, 0))

    return jax.vmap(put)(pair[0], k, positions), jax.vmap(put)(pair[1], v, positions)


def _attend(q: jax.Array, keys: jax.Array, values: jax.Array, positions: jax.Array) -> jax.Array:
    """Outputs [R, H*D] of queries [R, H, D] over a bank's layer up to `positions` [R]."""
    rows, kv, window, size = keys.shape
    grouped = q.reshape(rows, kv, -1, size)
    hidden = jnp.arange(window)[None] > positions[:, None]
    scores = jnp.einsum("rkgd,rksd->rkgs", grouped, keys)
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
