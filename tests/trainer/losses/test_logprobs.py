"""Chunked log-probabilities and entropies against the plain formula."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from patchgym.trainer.losses import token_logprobs


def _plain(hidden: jax.Array, head: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All logits at once."""
    table = jax.nn.log_softmax(hidden @ head.T)
    chosen = jnp.take_along_axis(table, targets[:, None], axis=1)[:, 0]
    return chosen, -jnp.sum(jnp.exp(table) * table, axis=1)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("chunk", "count"), [(4, 12), (12, 12), (4, 9), (4, 8), (3, 1), (4, 0)])
def test_chunked_logprobs_equal_the_plain_formula(chunk: int, count: int, jitted: bool) -> None:
    rng = np.random.default_rng(0)
    hidden = jnp.asarray(rng.normal(size=(12, 8)), jnp.float32)
    head = jnp.asarray(rng.normal(size=(37, 8)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, 37, 12), jnp.int32)
    real = np.arange(12) < count
    weight = jnp.asarray(rng.normal(size=12) * real, jnp.float32)
    reads = jnp.asarray(count, jnp.int32)

    def chunked(h: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(token_logprobs(h, w, targets, reads, chunk)[0] * weight)

    def plain(h: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(_plain(h, w, targets)[0] * weight)

    wrap = jax.jit if jitted else lambda function: function
    for got, want in zip(
        wrap(jax.grad(chunked, (0, 1)))(hidden, head),
        jax.grad(plain, (0, 1))(hidden, head),
        strict=True,
    ):
        np.testing.assert_allclose(got, want, atol=1e-5)
    found = token_logprobs(hidden, head, targets, reads, chunk)
    for got, want in zip(found, _plain(hidden, head, targets), strict=True):
        np.testing.assert_allclose(got[:count], want[:count], atol=1e-5)
        assert not got[-(-count // chunk) * chunk :].any()


@pytest.mark.parametrize(("chunk", "count"), [(4, 12), (4, 9), (3, 1)])
def test_the_entropy_passes_a_gradient_only_when_asked(chunk: int, count: int) -> None:
    rng = np.random.default_rng(1)
    hidden = jnp.asarray(rng.normal(size=(12, 8)), jnp.float32)
    head = jnp.asarray(rng.normal(size=(37, 8)), jnp.float32)
    targets = jnp.asarray(rng.integers(0, 37, 12), jnp.int32)
    weight = jnp.asarray(rng.normal(size=(2, 12)) * (np.arange(12) < count), jnp.float32)
    reads = jnp.asarray(count, jnp.int32)

    def chunked(h: jax.Array, w: jax.Array, slope: bool) -> jax.Array:
        found = token_logprobs(h, w, targets, reads, chunk, entropy_slope=slope)
        return sum((jnp.sum(x * y) for x, y in zip(found, weight, strict=True)), jnp.zeros(()))

    def plain(h: jax.Array, w: jax.Array, entropies: float) -> jax.Array:
        first, second = _plain(h, w, targets)
        return jnp.sum(first * weight[0]) + entropies * jnp.sum(second * weight[1])

    for slope in (False, True):
        got = jax.grad(chunked, (0, 1))(hidden, head, slope)
        want = jax.grad(plain, (0, 1))(hidden, head, float(slope))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_no_array_of_all_logits_is_made() -> None:
    positions, vocabulary = 4096, 8192
    arguments = (
        jax.ShapeDtypeStruct((positions, 16), jnp.float32),
        jax.ShapeDtypeStruct((vocabulary, 16), jnp.float32),
        jax.ShapeDtypeStruct((positions,), jnp.int32),
        jax.ShapeDtypeStruct((), jnp.int32),
    )
    slope = jax.grad(lambda h, w, t, n: token_logprobs(h, w, t, n, 256)[0].sum(), (0, 1))
    analysis = jax.jit(slope).lower(*arguments).compile().memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < positions * vocabulary * 4 / 2
