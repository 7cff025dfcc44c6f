"""Factors and their slopes against arrays computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.trainer.losses import (
    Factors,
    cispo,
    clipped,
    divergence_masked,
    gated,
    plain,
    ppo,
    sequence_ppo,
)

Surrogate = Callable[[jax.Array, jax.Array], Factors]

DEFAULT = partial(clipped, clip_low=0.2, clip_high=0.28, ratio_cap=2.0)
PPO = partial(ppo, clip_low=0.2, clip_high=0.28)
DUAL = partial(ppo, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
CISPO = partial(cispo, ratio_cap=2.0)
SAPO = partial(gated, positive=1.0, negative=2.0)
DPPO = partial(divergence_masked, limit=0.15, ratio_cap=2.0)


def _objective(
    function: Surrogate, logprobs: jax.Array, base: jax.Array, positive: float, negative: float
) -> jax.Array:
    found = function(logprobs, jax.lax.stop_gradient(logprobs) - base)
    return jnp.sum(positive * found.up + negative * found.down)


# The token has probability exp(-1) = 0.368 under the other policy.
# ratio, A+, A-, objective, d objective / d log p
CLIPPED = [
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
SIGMOID = 1 / (1 + np.exp(-0.5))  # of r - 1 at r = 1.5
SIGMOID2 = 1 / (1 + np.exp(-1.0))  # of 2 (r - 1) there
CASES = [
    *((DEFAULT, *case) for case in CLIPPED),
    (PPO, 1.5, 1.0, 0.0, 1.28, 0.0),
    (PPO, 0.5, 0.0, -2.0, -1.6, 0.0),
    (PPO, 2.6, 0.0, -2.0, -5.2, -5.2),  # no bound
    (DUAL, 1.3, 1.0, 0.0, 1.2, 0.0),
    (DUAL, 2.5, 0.0, -2.0, -5.0, -5.0),
    (DUAL, 3.5, 0.0, -2.0, -6.0, 0.0),  # bound, and no gradient
    (CISPO, 1.5, 2.0, 0.0, 2.0 * 1.5 * (-1 + np.log(1.5)), 3.0),
    (CISPO, 2.5, 2.0, 0.0, 2.0 * 2.0 * (-1 + np.log(2.5)), 4.0),  # truncated, never dropped
    (CISPO, 0.1, 0.0, -1.0, -0.1 * (-1 + np.log(0.1)), -0.1),
    (SAPO, 1.0, 1.0, 0.0, 2.0, 1.0),  # the slope is r x A where r = 1, whatever the temperature
    (SAPO, 1.0, 0.0, -1.0, -1.0, -1.0),
    (SAPO, 1.5, 1.0, 0.0, 4 * SIGMOID, 4 * SIGMOID * (1 - SIGMOID) * 1.5),
    (SAPO, 1.5, 0.0, -1.0, -2 * SIGMOID2, -4 * SIGMOID2 * (1 - SIGMOID2) * 1.5),
    (DPPO, 1.3, 1.0, 0.0, 1.3, 1.3),  # moved by 0.110
    (DPPO, 1.5, 1.0, 0.0, 1.5, 0.0),  # moved up by 0.184, pushed up
    (DPPO, 1.5, 0.0, -1.0, -1.5, -1.5),  # moved up, pushed down: it may come back
    (DPPO, 0.5, 0.0, -1.0, -0.5, 0.0),  # moved down by 0.184, pushed down
    (DPPO, 0.5, 1.0, 0.0, 0.5, 0.5),
    (DPPO, 2.5, 0.0, -1.0, -2.0, -2.0),  # truncated
]


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("function", "ratio", "positive", "negative", "value", "slope"), CASES)
def test_a_token_has_the_value_and_the_slope_computed_by_hand(
    function: Surrogate,
    ratio: float,
    positive: float,
    negative: float,
    value: float,
    slope: float,
    jitted: bool,
) -> None:
    def total(logprobs: jax.Array) -> jax.Array:
        return _objective(function, logprobs, jnp.asarray([-1.0]), positive, negative)

    both = jax.value_and_grad(total)
    both = jax.jit(both) if jitted else both
    got, gradient = both(jnp.asarray([-1.0 + np.log(ratio)], jnp.float32))
    np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, [slope], rtol=1e-5, atol=1e-6)


def test_what_is_cut_and_what_is_truncated_is_told() -> None:
    ratios = jnp.asarray([0.5, 1.0, 1.5, 3.5])
    found = DUAL(jnp.log(ratios) - 1, jnp.log(ratios))
    assert found.cut_up.tolist() == [False, False, True, True]
    assert found.cut_down.tolist() == [True, False, False, True]
    assert DEFAULT(jnp.log(ratios) - 1, jnp.log(ratios)).truncated.tolist() == [False] * 3 + [True]
    assert CISPO(jnp.log(ratios) - 1, jnp.log(ratios)).truncated.tolist() == [False] * 3 + [True]
    far = DPPO(jnp.log(ratios) - 1, jnp.log(ratios))
    assert far.cut_up.tolist() == [False, False, True, True]
    assert far.cut_down.tolist() == [True, False, False, False]


def test_the_bounds_of_dppo_are_probabilities_not_ratios() -> None:
    """A rare token may become five times as likely, a likely one may not move by a quarter."""
    before = jnp.log(jnp.asarray([0.001, 0.8]))
    now = jnp.log(jnp.asarray([0.005, 0.6]))
    found = DPPO(now, now - before)
    assert found.cut_up.tolist() == [False, False]
    assert found.cut_down.tolist() == [False, True]


def test_plain_is_the_log_probability() -> None:
    found = plain(jnp.asarray([-1.5, -0.5]))
    assert found.up.tolist() == found.down.tolist() == [-1.5, -0.5]


# Two sequences of 2 and 3 tokens and one of padding; mean log-ratios 0.05 and -0.1.
LOG_RATIOS = [0.3, -0.2, -0.1, -0.3, 0.1, 9.0]
OWNERS = [1, 1, 2, 2, 2, 0]
REAL = [True] * 5 + [False]


def _sequence(logprobs: jax.Array, by_token: bool, wide: float) -> Factors:
    base = jnp.full(6, -1.0)
    return sequence_ppo(
        logprobs,
        jax.lax.stop_gradient(logprobs) - base,
        jnp.asarray(OWNERS),
        jnp.asarray(REAL),
        clip_low=wide,
        clip_high=wide,
        by_token=by_token,
    )


@pytest.mark.parametrize("by_token", [False, True])
def test_the_ratio_of_a_sequence_is_the_mean_of_its_tokens(by_token: bool) -> None:
    logprobs = jnp.asarray(LOG_RATIOS) - 1
    found = _sequence(logprobs, by_token, 0.5)
    first, second = np.exp(0.05), np.exp(-0.1)
    np.testing.assert_allclose(found.up[:5], [first] * 2 + [second] * 3, rtol=1e-5)
    narrow = _sequence(logprobs, by_token, 0.01)
    np.testing.assert_allclose(narrow.up[:5], [1.01] * 2 + [second] * 3, rtol=1e-5)
    np.testing.assert_allclose(narrow.down[:5], [first] * 2 + [0.99] * 3, rtol=1e-5)
    assert narrow.cut_up.tolist()[:5] == [True] * 2 + [False] * 3
    assert narrow.cut_down.tolist()[:5] == [False] * 2 + [True] * 3


def test_gspo_and_gspo_token_have_one_gradient_where_a_sequence_has_one_advantage() -> None:
    logprobs = jnp.asarray(LOG_RATIOS) - 1
    advantages = jnp.asarray([1.5, 1.5, 0.5, 0.5, 0.5, 0.0])

    def total(logprobs: jax.Array, by_token: bool) -> jax.Array:
        return jnp.sum(_sequence(logprobs, by_token, 0.5).up * advantages)

    whole, token = (jax.grad(total)(logprobs, by_token) for by_token in (False, True))
    # By hand: the ratio x the advantage x d mean / d log p, times the sequence's tokens.
    first, second = 1.5 * np.exp(0.05), 0.5 * np.exp(-0.1)
    np.testing.assert_allclose(whole, [first] * 2 + [second] * 3 + [0], rtol=1e-5)
    np.testing.assert_allclose(token, whole, rtol=1e-5)


def test_gspo_token_can_tell_tokens_of_one_sequence_apart() -> None:
    logprobs = jnp.asarray(LOG_RATIOS) - 1
    advantages = jnp.asarray([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def total(logprobs: jax.Array, by_token: bool) -> jax.Array:
        return jnp.sum(_sequence(logprobs, by_token, 0.5).up * advantages)

    ratio = np.exp(0.05)
    token = jax.grad(total)(logprobs, True)
    np.testing.assert_allclose(token, [ratio, 0, 0, 0, 0, 0], rtol=1e-5)
    whole = jax.grad(total)(logprobs, False)
    np.testing.assert_allclose(whole, [ratio / 2, ratio / 2, 0, 0, 0, 0], rtol=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_clipped_objective_never_exceeds_the_unclipped_one(seed: int) -> None:
    """PPO's bound: a pessimistic estimate, for any ratio below the cap."""
    rng = np.random.default_rng(seed)
    log_ratio = rng.uniform(-2, np.log(2), 16).astype(np.float32)
    advantage = rng.normal(size=16).astype(np.float32)
    for function in (DEFAULT, PPO):
        found = function(jnp.asarray(log_ratio - 1), jnp.asarray(log_ratio))
        value = np.maximum(advantage, 0) * found.up + np.minimum(advantage, 0) * found.down
        assert np.all(np.asarray(value) <= np.exp(log_ratio) * advantage + 1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_at_ratio_one_every_loss_has_the_policy_gradient(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logprobs = jnp.asarray(rng.uniform(-3, -0.1, 8), jnp.float32)
    advantage = float(rng.normal())
    up, down = max(advantage, 0.0), min(advantage, 0.0)
    for function in (DEFAULT, PPO, DUAL, CISPO, SAPO, DPPO):
        total = partial(_objective, function, base=logprobs, positive=up, negative=down)
        np.testing.assert_allclose(jax.grad(total)(logprobs), np.full(8, advantage), rtol=1e-4)
