"""The compiled programs of the sampler: weights laid out, a prompt read in, tokens sampled.

Axes: B turns of a launch, R rows of a bank (B = banks x R), T tokens read in at once, N steps of a
launch; d, H, K, G, D, V as in `model.decoder`.

Products multiply numbers of the weights' type and sum in float32; all else, from the residual
stream to the logits, is float32. Two-dimensional activations, matrices that lie [out, in], and
layers that are not stacked are what makes decoding fast on CPU: a stacked layer or a strided
operand is copied before each product.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.model.layers import (
    Turn,
    gated,
    heads_of,
    joined,
    normed,
    rotary_table,
    scaled,
)

from .draw import choose
from .kv_cache import Cache, attend, attend_one, read_in

Weights: TypeAlias = dict[str, Any]
"""Weights laid out for sampling, by `lay_out`."""

MATRICES = ("query", "key", "value", "output", "gate", "up", "down")
"""What a layer multiplies by."""


@partial(jax.jit, static_argnums=(0, 2))
def lay_out(config: ModelConfig, params: Params, dtype: str = "float32") -> Weights:
    """A copy of `params` with one entry a layer, and every matrix in `dtype`.

    Matrices are turned to [out, in], as the embedding lies already: a product of few rows is a
    fifth faster so. Nothing is fused: that gains nothing.
    """
    layers = params["layers"]
    # `copy`, since a program that returns its argument as it is shares the buffer.
    embed = jnp.copy(params["embed"].astype(dtype))
    laid: Weights = {"norm": jnp.copy(params["norm"]), "embed": embed}
    if not config.tied:
        laid["head"] = params["head"].T.astype(dtype)
    elif dtype != "float32":
        laid["head"] = embed
    if dtype != "float32":
        # XLA on CPU would convert a whole table of bfloat16 to look a few rows up.
        laid["embed"] = jax.lax.bitcast_convert_type(embed, jnp.uint16)
    laid["layers"] = [
        {
            name: stacked[i].T.astype(dtype) if name in MATRICES else stacked[i]
            for name, stacked in layers.items()
        }
        for i in range(config.layers)
    ]
    return laid


def _product(x: jax.Array, matrix: jax.Array) -> jax.Array:
    """`x` [B, in] times `matrix` [out, in], summed in float32: [B, out]."""
    along = (((1,), (1,)), ((), ()))
    x = x.astype(matrix.dtype)
    return jax.lax.dot_general(x, matrix, along, preferred_element_type=jnp.float32)


def _embedded(config: ModelConfig, weights: Weights, tokens: jax.Array) -> jax.Array:
    """The residual stream [B, d] that `tokens` [B] begin with."""
    x = weights["embed"][tokens]
    if x.dtype == jnp.uint16:
        x = jax.lax.bitcast_convert_type(x, jnp.bfloat16)
    return scaled(config, x.astype(jnp.float32))


def _project(
    config: ModelConfig, layer: Weights, x: jax.Array, turn: Turn
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rotated, scaled queries [B, H, D], rotated keys and values [B, K, D] of `x` [B, d]."""
    h = normed(config, x, layer["attention_norm"])
    query, key, value = (_product(h, layer[name]) for name in ("query", "key", "value"))
    return heads_of(config, layer, (query, key, value), turn)


def _rest(config: ModelConfig, layer: Weights, x: jax.Array, mixed: jax.Array) -> jax.Array:
    """One layer from attention's outputs `mixed` [B, H*D] on, residuals included; `x` [B, d]."""
    x += joined(config, layer, "attention", _product(mixed, layer["output"]))
    h = normed(config, x, layer["mlp_norm"])
    inside = gated(config, _product(h, layer["gate"]), _product(h, layer["up"]))
    x += joined(config, layer, "mlp", _product(inside, layer["down"]))
    return x


def _turns(config: ModelConfig, positions: jax.Array) -> tuple[Turn, Turn]:
    """The rotation at each of `positions` [...], of layers that see all and of windowed ones."""
    whole = rotary_table(config, positions)
    return whole, rotary_table(config, positions, local=True) if config.windowed else whole


def _windowed(config: ModelConfig) -> tuple[bool, ...]:
    """For each layer whether it sees only a window."""
    return config.windowed or (False,) * config.layers


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
    positions = start + jnp.arange(tokens.shape[0], dtype=jnp.int32)
    turns = _turns(config, positions)
    x = _embedded(config, weights, tokens)
    filled: Cache = []
    for layer, windowed, pair in zip(weights["layers"], _windowed(config), cache, strict=True):
        q, k, v = _project(config, layer, x, turns[windowed])
        pair = read_in(pair, row, k, v, start)
        filled.append(pair)
        window = config.window if windowed else None
        x = _rest(config, layer, x, attend_one(q, pair, row, positions, window))
    return filled


@partial(jax.jit, static_argnums=0, static_argnames="native", donate_argnums=2)
def decode(
    config: ModelConfig,
    weights: Weights,
    caches: list[Cache],
    tokens: jax.Array,
    positions: jax.Array,
    draws: jax.Array,
    temperatures: jax.Array,
    *,
    native: bool = False,
) -> tuple[list[Cache], jax.Array, jax.Array]:
    """Sample N tokens for each turn of some banks of the same window.

    `tokens` [B] are read in at `positions` [B] first; `draws` [N, B] in [0, 1) decide;
    `temperatures` [B], 0 takes the most likely token. Returns the caches, the sampled tokens
    [N, B], and their logprobs [N, B] under the distribution sampled from. `native`: attention is
    the kernel's in C.
    """

    def step(carry: Any, given: Any) -> Any:
        caches, tokens = carry
        draw, places, turns = given
        caches, logits = _advance(config, weights, caches, tokens, places, turns, native)
        sampled, logprobs = choose(logits, draw, temperatures)
        return (caches, sampled), (sampled, logprobs)

    places = positions + jnp.arange(draws.shape[0], dtype=jnp.int32)[:, None]
    # Rotations are computed here, once: inside, every layer would compute them again.
    given = (draws, places, _turns(config, places))
    (caches, _), (sampled, logprobs) = jax.lax.scan(step, (caches, tokens), given)
    return caches, sampled, logprobs


def _advance(
    config: ModelConfig,
    weights: Weights,
    caches: list[Cache],
    tokens: jax.Array,
    positions: jax.Array,
    turns: tuple[Turn, Turn],
    native: bool,
) -> tuple[list[Cache], jax.Array]:
    """Read one token [B] a turn into the caches; logits [B, V] of the next."""
    x = _embedded(config, weights, tokens)
    advanced: list[Cache] = [[] for _ in caches]
    for i, (layer, windowed) in enumerate(zip(weights["layers"], _windowed(config), strict=True)):
        q, k, v = _project(config, layer, x, turns[windowed])
        window = config.window if windowed else None
        pairs = [cache[i] for cache in caches]
        mixed, pairs = attend(q, k, v, pairs, positions, window, native=native)
        for cache, pair in zip(advanced, pairs, strict=True):
            cache.append(pair)
        x = _rest(config, layer, x, mixed)
    hidden = normed(config, x, weights["norm"])
    return advanced, _product(hidden, weights["head" if "head" in weights else "embed"])
