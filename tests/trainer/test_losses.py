"""The loss against arrays computed by hand; log-probabilities against the plain formula."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.trainer.losses import surrogate, token_logprobs, token_sums

LIMITS = {"clip_low": 0.2, "clip_high": 0.28, "ratio_cap": 2.0}


def clipped_surrogate(
    logprobs: jax.Array, sampler: jax.Array, positive: jax.Array, negative: jax.Array
) -> jax.Array:
    """`surrogate` with the limits that these tests use."""
    return surrogate(
        logprobs, sampler, positive, negative, clip_low=0.2, clip_high=0.28, ratio_cap=2.0
    )


# ratio, A+, A-, objective, d objective / d log p
CASES = [
    (1.0, 1.5, 0.0, 1.5, 1.5),
    (1.2, 1.0, 0.0, 1.2, 1.2),
    (1.5, 1.0, 0.0, 1.28, 0.0),  # clipped above
    (0.5, 1.0, 0.0, 0.5, 0.5),  # a positive advantage is not clipped below
    (0.9, 0.0, -2.0, -1.8, -1.8),
    (0.5, 0.0, -2.0, -1.6, 0.0),  # clipped below
    (1.5, 0.0, -2.0, -3.0, -3.0),  # a negative advantage is not clipped above ...
    (5.0, 0.0, -2.0, -4.0, -4.0),  # ... but its weight is truncated, and keeps its gradient
    (1.5, 1.0, -2.0, 1.28 - 3.0, -3.0),  # shared by two sequences: each clipped by itself
    (7.0, 0.0, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("ratio", "positive", "negative", "value", "slope"), CASES)
def test_surrogate_golden(
    ratio: float, positive: float, negative: float, value: float, slope: float, jitted: bool
) -> None:
    def total(logprobs: jax.Array) -> jax.Array:
        sampler, up, down = (jnp.asarray([x]) for x in (-1.0, positive, negative))
        return clipped_surrogate(logprobs, sampler, up, down).sum()

    function = jax.value_and_grad(total)
    function = jax.jit(function) if jitted else function
    got, gradient = function(jnp.asarray([-1.0 + np.log(ratio)], jnp.float32))
    np.testing.assert_allclose(got, value, rtol=1e-5)
    np.testing.assert_allclose(gradient, [slope], rtol=1e-5)


def test_sums_golden() -> None:
    # Two real tokens (the first shared by 3 sequences), one of padding with absurd values.
    ratios = np.asarray([1.5, 0.9, 1.0])
    sums = token_sums(
        jnp.asarray([*np.log(ratios[:2]) - 1.0, 80.0], jnp.float32),
        jnp.asarray([2.0, 1.0, 7.0]),
        jnp.asarray([-1.0, -1.0, -80.0]),
        jnp.asarray([1.0, 0.0, 0.0]),
        jnp.asarray([0.0, -2.0, 0.0]),
        jnp.asarray([3.0, 1.0, 0.0]),
        **LIMITS,
    )
    np.testing.assert_allclose(sums.objective, 1.28 - 1.8, rtol=1e-5)
    np.testing.assert_allclose(sums.entropy, 7.0)
    np.testing.assert_allclose(sums.ratio, 3 * 1.5 + 0.9, rtol=1e-5)
    np.testing.assert_allclose(sums.clipped, 3.0)
    expected = 3 * (0.5 - np.log(1.5)) + (-0.1 - np.log(0.9))
    np.testing.assert_allclose(sums.mismatch_kl, expected, rtol=1e-4)
    np.testing.assert_allclose(sums.tokens, 4.0)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_objective_never_exceeds_the_unclipped_one(seed: int) -> None:
    """PPO's bound: a pessimistic estimate, for any ratio below the cap."""
    rng = np.random.default_rng(seed)
    log_ratio = rng.uniform(-2, np.log(2), 16).astype(np.float32)
    advantage = rng.normal(size=16).astype(np.float32)
    sampler = np.full(16, -1.0, np.float32)
    clipped = clipped_surrogate(
        jnp.asarray(sampler + log_ratio),
        jnp.asarray(sampler),
        jnp.asarray(np.maximum(advantage, 0)),
        jnp.asarray(np.minimum(advantage, 0)),
    )
    assert np.all(np.asarray(clipped) <= np.exp(log_ratio) * advantage + 1e-5)


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
