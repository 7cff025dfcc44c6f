"""The decoder sees exactly what `ends` lets it see, and computes what a plain loop computes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from tiny_model import TINY

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import (
    Decoder,
    Params,
    head_weight,
    hidden_states,
    init_params,
    params_of,
)
from patchgym.trainer.model.execution import Execution

TOKENS = np.random.default_rng(0).integers(0, TINY.vocabulary, 24)


def _row(tokens: npt.NDArray[np.int64], positions: list[int], ends: list[int]) -> jax.Array:
    """Hidden states [T, d] of one row."""
    columns = [jnp.asarray([values], jnp.int32) for values in (tokens, positions, ends)]
    return hidden_states(TINY, init_params(TINY, 1), *columns)[0]


def _slow(config: ModelConfig, params: Params, tokens: list[int]) -> npt.NDArray[np.float64]:
    """A causal decoder in numpy and float64, one head and one query at a time."""
    p = jax.tree.map(lambda array: np.asarray(array, np.float64), params)
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-np.arange(half) / half)

    def norm(
        x: npt.NDArray[np.float64], weight: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + config.eps) * weight)

    def turned(x: npt.NDArray[np.float64], place: int) -> npt.NDArray[np.float64]:
        pairs = (x[:half] + 1j * x[half:]) * np.exp(1j * place * frequencies)
        return np.concatenate([pairs.real, pairs.imag])

    x = p["embed"][tokens]
    for i in range(config.layers):
        w = {name: stacked[i] for name, stacked in p["layers"].items()}
        h = norm(x, w["attention_norm"])
        q, k, v = (
            (h @ w[n]).reshape(len(x), -1, config.head_dim) for n in ("query", "key", "value")
        )
        mixed = np.zeros_like(q)
        for head in range(config.heads):
            shared = head // (config.heads // config.kv_heads)
            keys = np.stack([turned(k[t, shared], t) for t in range(len(x))])
            for t in range(len(x)):
                scores = keys[: t + 1] @ turned(q[t, head], t) / np.sqrt(config.head_dim)
                share = np.exp(scores - scores.max())
                mixed[t, head] = share / share.sum() @ v[: t + 1, shared]
        x = x + mixed.reshape(len(x), -1) @ w["output"]
        h = norm(x, w["mlp_norm"])
        gate = h @ w["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"])) @ w["down"]
    return np.asarray(norm(x, p["norm"]))


def test_agrees_with_a_plain_loop() -> None:
    plain = _slow(TINY, init_params(TINY, 1), TOKENS.tolist())
    ours = _row(TOKENS, list(range(24)), [24] * 24)
    assert np.abs(plain - np.asarray(ours)).max() < 1e-4


def test_packed_segments_do_not_see_each_other() -> None:
    together = _row(TOKENS, [*range(10), *range(14)], [10] * 10 + [24] * 14)
    first = _row(TOKENS[:10], list(range(10)), [10] * 10)
    second = _row(TOKENS[10:], list(range(14)), [14] * 14)
    assert np.abs(together - jnp.concatenate([first, second])).max() < 1e-5


def test_branches_of_a_prefix_tree_see_the_trunk_and_not_each_other() -> None:
    tree = _row(TOKENS, [*range(8), *range(8, 16), *range(8, 16)], [24] * 8 + [16] * 8 + [24] * 8)
    other = np.concatenate([TOKENS[:8], TOKENS[16:]])
    one = _row(TOKENS[:16], list(range(16)), [16] * 16)
    two = _row(other, list(range(16)), [16] * 16)
    assert np.abs(tree[:16] - one).max() < 1e-5
    assert np.abs(tree[16:] - two[8:]).max() < 1e-5


def test_what_is_kept_for_the_backward_pass_does_not_change_gradients() -> None:
    want, most = _gradient(Execution())
    sizes = [most]
    for keep in ("attention", "inputs", "host"):
        got, size = _gradient(Execution(keep=keep))
        for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        sizes.append(size)
    assert sizes[0] > sizes[1] > sizes[2]


def test_in_bfloat16_gradients_are_float32_and_near() -> None:
    want, _ = _gradient(Execution())
    got, _ = _gradient(Execution(compute="bfloat16"))
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        assert b.dtype == jnp.float32
        assert 0 < np.linalg.norm(a - b) < 0.1 * np.linalg.norm(a)


DEEP = dataclasses.replace(TINY, layers=12, ffn=192)


def _gradient(execution: Execution) -> tuple[Params, int]:
    """Of the mean of a row's cubed states; and the bytes that its program needs."""
    params = init_params(DEEP, 1)
    place = jnp.arange(192, dtype=jnp.int32)[None]
    ends = jnp.full_like(place, 192)

    def loss(params: Params) -> jax.Array:
        hidden = hidden_states(DEEP, params, place, place, ends, execution=execution)
        return jnp.mean(hidden.astype(jnp.float32) ** 3)

    program = jax.jit(jax.grad(loss)).lower(params).compile()
    gradient: Params = program(params)
    analysis = program.memory_analysis()
    assert analysis is not None
    return gradient, analysis.temp_size_in_bytes


def test_the_module_and_the_plain_dict_are_the_same_model() -> None:
    from flax import nnx

    module = Decoder(TINY, rngs=nnx.Rngs(1))
    row = jnp.asarray([TOKENS], jnp.int32)
    place = jnp.arange(24, dtype=jnp.int32)[None]
    ends = jnp.full_like(place, 24)
    by_dict = hidden_states(TINY, params_of(module), row, place, ends)
    np.testing.assert_array_equal(module(row, place, ends), by_dict)


def test_head_is_the_embedding_only_when_tied() -> None:
    untied = dataclasses.replace(TINY, tied=False)
    for config in (TINY, untied):
        params = init_params(config, 0)
        assert head_weight(config, params).shape == (config.width, config.vocabulary)
        assert ("head" in params) is not config.tied
        assert sum(array.size for array in jax.tree.leaves(params)) == config.parameters


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="kv_heads=3 must divide heads=4"):
        dataclasses.replace(TINY, kv_heads=3)
    with pytest.raises(ValueError, match="head_dim=7 must be even"):
        dataclasses.replace(TINY, head_dim=7)
