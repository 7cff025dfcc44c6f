"""The decoder: a Flax NNX module that owns the weights, and pure functions that apply them.

Axes: B rows, T tokens, d width, H query heads, K key/value heads, G = H / K, D head size,
F feed-forward size, V vocabulary, L layers.

The weights travel as a plain dict (`Params`), layers stacked on a leading axis L:

    embed [V, d] · norm [d] · head [d, V] (only when untied) ·
    layers: attention_norm [L, d] · query [L, d, H*D] · key, value [L, d, K*D] ·
            output [L, H*D, d] · mlp_norm [L, d] · gate, up [L, d, F] · down [L, F, d]
    Qwen2: query_bias [L, H*D] · key_bias, value_bias [L, K*D]
    Qwen3, Gemma 3: query_norm, key_norm [L, D]
    Gemma 3: after_attention_norm, after_mlp_norm [L, d]

Gemma's norms are kept as its files hold them: what multiplies is 1 + weight.

`forward` says which tokens of a row see which.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

from .config import ModelConfig
from .forward import Params, hidden_states

__all__ = [
    "Decoder",
    "Layers",
    "Params",
    "head_weight",
    "hidden_states",
    "init_params",
    "params_of",
]


def _normal(rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: int) -> nnx.Param[jax.Array]:
    """A float32 weight drawn with variance 1 / fan_in."""
    return nnx.Param(jax.random.normal(rngs.params(), shape, jnp.float32) / math.sqrt(fan_in))


def _flat_norm(config: ModelConfig, *shape: int) -> nnx.Param[jax.Array]:
    """A norm's weight that multiplies by one."""
    return nnx.Param(jnp.full(shape, 0.0 if config.parts.offset_norms else 1.0, jnp.float32))


class Layers(nnx.Module):
    """All decoder layers, each weight stacked on a leading axis L so that `lax.scan` walks it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs) -> None:
        count, d, ffn = config.layers, config.width, config.ffn
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.attention_norm = _flat_norm(config, count, d)
        self.query = _normal(rngs, (count, d, q), d)
        self.key = _normal(rngs, (count, d, kv), d)
        self.value = _normal(rngs, (count, d, kv), d)
        self.output = _normal(rngs, (count, q, d), q)
        self.mlp_norm = _flat_norm(config, count, d)
        self.gate = _normal(rngs, (count, d, ffn), d)
        self.up = _normal(rngs, (count, d, ffn), d)
        self.down = _normal(rngs, (count, ffn, d), ffn)
        if config.parts.biases:
            self.query_bias = nnx.Param(jnp.zeros((count, q), jnp.float32))
            self.key_bias = nnx.Param(jnp.zeros((count, kv), jnp.float32))
            self.value_bias = nnx.Param(jnp.zeros((count, kv), jnp.float32))
        if config.parts.head_norms:
            self.query_norm = _flat_norm(config, count, config.head_dim)
            self.key_norm = _flat_norm(config, count, config.head_dim)
        if config.parts.post_norms:
            self.after_attention_norm = _flat_norm(config, count, d)
            self.after_mlp_norm = _flat_norm(config, count, d)


class Decoder(nnx.Module):
    """A decoder of any family. The functions below take its weights as a plain dict instead."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs) -> None:
        self.config = config
        self.embed = _normal(rngs, (config.vocabulary, config.width), config.width)
        self.layers = Layers(config, rngs=rngs)
        self.norm = _flat_norm(config, config.width)
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
