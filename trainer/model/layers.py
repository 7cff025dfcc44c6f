"""The arithmetic of a layer between its matrix products, for the learner and the sampler alike.

How the products are laid out is their callers' affair; what differs between families is here.
Axes as in `decoder`; `...` is whatever rows and tokens a caller has. Norms and rotations are
computed in float32 or better and returned in the type of their input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from .config import ModelConfig
from .rotary import rotary_frequencies, rotary_magnitude

Turn: TypeAlias = tuple[jax.Array, jax.Array]
"""Cosines and sines [..., D/2] of a rotation, float32."""


def embedded(config: ModelConfig, table: jax.Array, tokens: jax.Array) -> jax.Array:
    """The residual stream [..., d] that `tokens` [...] begin with; `table` [V, d]."""
    return scaled(config, table[tokens])


def scaled(config: ModelConfig, x: jax.Array) -> jax.Array:
    """Embeddings `x` [..., d] as the family's residual stream begins with them."""
    if config.parts.scaled_embedding:
        return x * jnp.asarray(math.sqrt(config.width), x.dtype)
    return x


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """`x` [..., d] scaled to a root mean square of one, times `weight` [d]."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scale: jax.Array = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return (wide * scale * weight.astype(wide.dtype)).astype(x.dtype)


def normed(config: ModelConfig, x: jax.Array, weight: jax.Array) -> jax.Array:
    """`rms_norm` as the family does it; `x` [..., n], `weight` [n]."""
    if config.parts.offset_norms:
        weight = weight.astype(jnp.promote_types(weight.dtype, jnp.float32)) + 1.0
    return rms_norm(x, weight, config.eps)


def joined(
    config: ModelConfig,
    weights: Mapping[str, Any],
    after: Literal["attention", "mlp"],
    y: jax.Array,
) -> jax.Array:
    """What of a block's output `y` [..., d] is added to the residual stream."""
    return normed(config, y, weights[f"after_{after}_norm"]) if config.parts.post_norms else y


def gated(config: ModelConfig, gate: jax.Array, up: jax.Array) -> jax.Array:
    """The inside of the feed-forward block: `gate` and `up` [..., F] to one."""
    active = jax.nn.gelu(gate, approximate=True) if config.parts.gelu else jax.nn.silu(gate)
    return active * up


def heads_of(
    config: ModelConfig,
    weights: Mapping[str, Any],
    products: tuple[jax.Array, jax.Array, jax.Array],
    turn: Turn,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries [..., H, D], rotated and scaled; keys [..., K, D], rotated; values [..., K, D].

    `products` are the projections [..., H*D], [..., K*D], [..., K*D] without biases; `weights`
    holds one layer's; `turn` [..., D/2] is the rotation at each token's position.
    """
    if config.parts.biases:
        names = ("query_bias", "key_bias", "value_bias")
        query, key, value = (x + weights[n] for x, n in zip(products, names, strict=True))
    else:
        query, key, value = products
    q, k, v = (x.reshape(*x.shape[:-1], -1, config.head_dim) for x in (query, key, value))
    if config.parts.head_norms:
        q = normed(config, q, weights["query_norm"])
        k = normed(config, k, weights["key_norm"])
    cosine, sine = (table[..., None, :] for table in turn)
    scale = 1 / math.sqrt(config.query_scalar or config.head_dim)
    return rotate(q, cosine, sine) * scale, rotate(k, cosine, sine), v


def rotary_table(config: ModelConfig, positions: jax.Array, *, local: bool = False) -> Turn:
    """The rotation at each of `positions` [...]; `local` for that of windowed layers."""
    theta, scaling = config.rope_theta, config.rope
    if local and config.local_rope_theta is not None:
        theta, scaling = config.local_rope_theta, None
    frequencies = jnp.asarray(rotary_frequencies(theta, config.head_dim, scaling), jnp.float32)
    angles = positions[..., None].astype(jnp.float32) * frequencies
    magnitude = rotary_magnitude(scaling)
    if magnitude == 1.0:
        return jnp.cos(angles), jnp.sin(angles)
    return jnp.cos(angles) * magnitude, jnp.sin(angles) * magnitude


def rotate(x: jax.Array, cosine: jax.Array, sine: jax.Array) -> jax.Array:
    """Rotate the halves of each head of `x` [..., heads, D] by tables [..., 1, D/2]."""
    first, second = jnp.split(x, 2, axis=-1)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
