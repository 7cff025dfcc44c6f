"""A token drawn from logits, and the logprob of the distribution that it was drawn from."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_BLOCK = 128
"""Vocabulary entries that are summed at once when a draw is looked up."""


def choose(
    logits: jax.Array, draws: jax.Array, temperatures: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Tokens [B] and their logprobs for `logits` [B, V] and `draws` [B], by inverse CDF.

    The largest and the cumulative sum are looked up in two levels, blocks first, which is several
    times faster than over the whole vocabulary. At temperature 0 the likeliest token has logprob 0.
    """
    greedy = temperatures <= 0
    scale = 1 / jnp.where(greedy, 1.0, temperatures)[:, None]
    pad = -logits.shape[1] % _BLOCK
    blocks = jnp.pad(logits, ((0, 0), (0, pad)), constant_values=-jnp.inf)
    blocks = blocks.reshape(logits.shape[0], -1, _BLOCK)
    tops = jnp.max(blocks, axis=-1)
    top = jnp.max(tops, axis=-1, keepdims=True)
    weights = jnp.exp((blocks - top[..., None]) * scale[..., None])
    ends = jnp.cumsum(jnp.sum(weights, axis=-1), axis=-1)
    total = ends[:, -1:]
    drawn = _place(weights, ends, draws[:, None] * total)
    best = jnp.argmax(tops, axis=-1)
    likeliest = best * _BLOCK + jnp.argmax(_row(blocks, best), axis=-1)
    tokens = jnp.where(greedy, likeliest, drawn).astype(jnp.int32)
    picked = jnp.take_along_axis(logits, tokens[:, None], 1)
    logprobs = ((picked - top) * scale - jnp.log(total))[:, 0]
    return tokens, jnp.where(greedy, 0.0, logprobs)


def _place(weights: jax.Array, ends: jax.Array, target: jax.Array) -> jax.Array:
    """Where the cumulative sum of `weights` [B, n, block] passes `target` [B, 1]: places [B].

    `ends` [B, n] are the cumulative sums at the blocks' ends.
    """
    block = jnp.minimum(jnp.sum(ends <= target, axis=-1), ends.shape[1] - 1)
    earlier = jnp.take_along_axis(ends, jnp.maximum(block - 1, 0)[:, None], 1)
    before = jnp.where(block[:, None] > 0, earlier, 0.0)
    inside = jnp.cumsum(_row(weights, block), axis=-1)
    place = jnp.sum(inside <= target - before, axis=-1)
    # Rounding can leave the target past the block's last entry that has any weight.
    last = jnp.sum(inside < inside[:, -1:], axis=-1)
    return block * _BLOCK + jnp.minimum(place, last)


def _row(blocks: jax.Array, block: jax.Array) -> jax.Array:
    """Of each turn's blocks [B, n, block] the one at `block` [B]."""
    return jnp.take_along_axis(blocks, block[:, None, None], 1)[:, 0]
