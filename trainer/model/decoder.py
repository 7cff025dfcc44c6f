"""The decoder: a Flax NNX module that owns the weights, and pure functions that apply them.

Axes: B rows, T tokens, d width, H query heads, K key/value heads, G = H / K, D head size,
F feed-forward size, V vocabulary, L layers.

The weights travel as a plain dict (`Params`), layers stacked on a leading axis L:

    embed [V, d] · norm [d] · head [d, V] (only when untied) ·
    layers: attention_norm [L, d] · query [L, d, H*D] · key, value [L, d, K*D] ·
            output [L, H*D, d] · mlp_norm [L, d] · gate, up [L, d, F] · down [L, F, d]

Token q of a row sees token k when `k <= q < ends[k]`. With `ends` equal to the row's length that
is plain causal attention; with the end of each token's segment it is packing; with the end of each
token's subtree, in depth-first order, it is attention over a prefix tree.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .config import ModelConfig

Params: TypeAlias = dict[str, Any]
"""The weights of a decoder as nested dicts of arrays; see the module's docstring for names."""

MASKED = -1e30
"""Added to the score of a pair that may not see each other; finite, so that no row is NaN."""

_QUERY_BLOCK = 256
"""Queries scored at a time; at most eight blocks a row, so that programs stay small."""


def _normal(rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: int) -> nnx.Param[jax.Array]:
    """A float32 weight drawn with variance 1 / fan_in."""
    return nnx.Param(jax.random.normal(rngs.params(), shape, jnp.float32) / math.sqrt(fan_in))


class Layers(nnx.Module):
    """All decoder layers, each weight stacked on a leading axis L so that `lax.scan` walks it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs) -> None:
        count, d, ffn = config.layers, config.width, config.ffn
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.attention_norm = nnx.Param(jnp.ones((count, d), jnp.float32))
        self.query = _normal(rngs, (count, d, q), d)
        self.key = _normal(rngs, (count, d, kv), d)
        self.value = _normal(rngs, (count, d, kv), d)
        self.output = _normal(rngs, (count, q, d), q)
        self.mlp_norm = nnx.Param(jnp.ones((count, d), jnp.float32))
        self.gate = _normal(rngs, (count, d, ffn), d)
        self.up = _normal(rngs, (count, d, ffn), d)
        self.down = _normal(rngs, (count, ffn, d), ffn)


class Decoder(nnx.Module):
    """A Llama-family decoder. The functions below take its weights as a plain dict instead."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.embed = _normal(rngs, (config.vocabulary, config.width), config.width)
        self.layers = Layers(config, rngs=rngs)
        self.norm = nnx.Param(jnp.ones((config.width,), jnp.float32))
        if not config.tied:
            self.head = _normal(rngs, (config.width, config.vocabulary), config.width)

    def __call__(self, tokens: jax.Array, positions: jax.Array, ends: jax.Array) -> jax.Array:
        """Normalized hidden states [B, T, d] of `tokens` [B, T]; see `hidden_states`."""
        return hidden_states(self.config, params_of(self), tokens, positions, ends)


def params_of(decoder: Decoder) -> Params:
    """The decoder's weights as nested dicts of arrays."""
    params: Params = nnx.to_pure_dict(nnx.state(decoder, nnx.Param))
    return params


def init_params(config: ModelConfig, seed: int) -> Params:
    """Random float32 weights for `config`; the same seed gives the same weights."""
    return params_of(Decoder(config, rngs=nnx.Rngs(seed)))


def head_weight(config: ModelConfig, params: Params) -> jax.Array:
    """The output head [d, V]: logits are `hidden @ head`."""
    head: jax.Array = params["embed"].T if config.tied else params["head"]
    return head


def hidden_states(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    ends: jax.Array,
    *,
    remat: bool = False,
) -> jax.Array:
    """Hidden states [B, T, d] after the final norm, for `tokens`, `positions`, `ends` [B, T] int32.

    Token q sees token k when `k <= q < ends[k]` (indices in the row; `positions` only rotate).
    `remat` keeps one residual per layer for the backward pass and computes the rest again.
    """
    cosine, sine = rotary_table(config, positions)
    bias = _visibility(ends)

    def layer(x: jax.Array, weights: Params) -> tuple[jax.Array, None]:
        return _layer(config, weights, x, cosine, sine, bias), None

    x: jax.Array = params["embed"][tokens]
    # Kept for the backward pass: by default the matrix products alone. Elementwise values are made
    # again, which is cheaper on CPU than storing them (half the memory, a sixth less time).
    policy = None if remat else jax.checkpoint_policies.dots_saveable
    kept = jax.checkpoint(layer, policy=policy, prevent_cse=False)  # scan separates the passes
    x, _ = jax.lax.scan(kept, x, params["layers"])
    return rms_norm(x, params["norm"], config.eps)


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """`x` [..., d] scaled to a root mean square of one, times `weight` [d]."""
    scale: jax.Array = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)
    return x * scale * weight


def rotary_table(config: ModelConfig, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines [..., D/2] of the rotation at each of `positions` [...]."""
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    frequencies = jnp.asarray(config.rope_theta**-exponents, jnp.float32)
    angles = positions[..., None].astype(jnp.float32) * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, cosine: jax.Array, sine: jax.Array) -> jax.Array:
    """Rotate the halves of each head of `x` [..., heads, D] by tables [..., 1, D/2]."""
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1)


def _visibility(ends: jax.Array) -> jax.Array:
    """Score bias [B, T, T]: 0 where query (axis 1) sees key (axis 2), else `MASKED`."""
    index = jnp.arange(ends.shape[1], dtype=jnp.int32)
    causal = index[None, None, :] <= index[None, :, None]
    return jnp.where(causal & (index[None, :, None] < ends[:, None, :]), 0.0, MASKED)


def _layer(
    config: ModelConfig,
    weights: Params,
    x: jax.Array,
    cosine: jax.Array,
    sine: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """One decoder layer over `x` [B, T, d]."""
    h = rms_norm(x, weights["attention_norm"], config.eps)
    x += _attention(config, weights, h, cosine, sine, bias) @ weights["output"]
    h = rms_norm(x, weights["mlp_norm"], config.eps)
    x += (jax.nn.silu(h @ weights["gate"]) * (h @ weights["up"])) @ weights["down"]
    return x


def _attention(
    config: ModelConfig,
    weights: Params,
    h: jax.Array,
    cosine: jax.Array,
    sine: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """Grouped-query attention of `h` [B, T, d]: the heads' outputs side by side [B, T, H*D].

    The G queries of a key/value head are folded into the rows of one matrix product per head,
    [G*T, D] x [D, T]: on CPU that is 1.4 times as fast as leaving the layout to `einsum`.
    """
    batch, length, _ = h.shape
    kv, group, size = config.kv_heads, config.heads // config.kv_heads, config.head_dim
    turn = (cosine[:, :, None], sine[:, :, None])
    q = rotate((h @ weights["query"]).reshape(batch, length, config.heads, size), *turn)
    k = rotate((h @ weights["key"]).reshape(batch, length, kv, size), *turn)
    v = (h @ weights["value"]).reshape(batch, length, kv, size)
    q = (q * (1 / math.sqrt(size))).reshape(batch, length, kv, group, size)
    q, k, v = q.transpose(0, 2, 3, 1, 4), k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    # Query blocks: a block's queries see no key past its end, so half of the pairs is never made.
    step = max(_QUERY_BLOCK, -(-length // 8))
    blocks = [
        _attend(q[..., start : start + step, :], k, v, bias, start)
        for start in range(0, length, step)
    ]
    mixed = jnp.concatenate(blocks, axis=3).transpose(0, 3, 1, 2, 4)
    return mixed.reshape(batch, length, config.heads * size)


def _attend(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array, start: int) -> jax.Array:
    """Queries [B, K, G, n, D] at indices from `start`, over keys up to their last: same shape."""
    batch, kv, group, count, size = q.shape
    stop = start + count
    scores = jnp.einsum("bkqd,bksd->bkqs", q.reshape(batch, kv, -1, size), k[:, :, :stop])
    scores = scores.reshape(batch, kv, group, count, stop)
    mixing = jax.nn.softmax(scores + bias[:, None, None, start:stop, :stop], axis=-1)
    mixing = mixing.reshape(batch, kv, group * count, stop)
    mixed = jnp.einsum("bkqs,bksd->bkqd", mixing, v[:, :, :stop])
    return mixed.reshape(q.shape)
