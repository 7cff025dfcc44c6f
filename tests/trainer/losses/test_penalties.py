"""KL estimates by hand, and what their gradients are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from patchgym.trainer.loss_config import KLEstimator
from patchgym.trainer.losses import kl_terms

LOGPROBS = [-1.0, -0.5, -2.0]
REFERENCE = [-1.0, -1.0, -1.0]
# d = 0, 0.5, -1
GOLDEN: list[tuple[KLEstimator, list[float], list[float]]] = [
    ("k1", [0.0, 0.5, -1.0], [0.0, 0.5, -1.0]),
    ("k2", [0.0, 0.125, 0.5], [0.0, 0.5, -1.0]),
    ("k3", [0.0, np.exp(-0.5) - 0.5, np.e - 2.0], [0.0, 1 - np.exp(-0.5), 1 - np.e]),
]


@pytest.mark.parametrize(("estimator", "values", "slopes"), GOLDEN)
def test_values_and_slopes_by_hand(
    estimator: KLEstimator, values: list[float], slopes: list[float]
) -> None:
    logprobs, reference = jnp.asarray(LOGPROBS), jnp.asarray(REFERENCE)
    np.testing.assert_allclose(kl_terms(logprobs, reference, estimator), values, rtol=1e-5)
    slope = jax.grad(lambda x: kl_terms(x, reference, estimator).sum())(logprobs)
    np.testing.assert_allclose(slope, slopes, rtol=1e-5)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_estimates_are_the_divergence_on_average(estimator: KLEstimator) -> None:
    """Exact for k1 and k3 by enumerating a distribution; k2 is within its known bias."""
    scores = jnp.asarray([0.3, -0.2, 0.1, 0.5])
    policy, reference = jax.nn.log_softmax(scores), jnp.log(jnp.full(4, 0.25))
    terms = kl_terms(policy, reference, estimator)
    mean = float(jnp.sum(jnp.exp(policy) * terms))
    exact = float(jnp.sum(jnp.exp(policy) * (policy - reference)))
    assert mean == pytest.approx(exact, rel=0.1 if estimator == "k2" else 1e-4)


@pytest.mark.parametrize("estimator", ["k1", "k2"])
def test_the_slope_of_k1_and_k2_is_that_of_the_divergence(estimator: KLEstimator) -> None:
    reference = jnp.log(jnp.full(4, 0.25))
    scores = jnp.asarray([0.3, -0.2, 0.1, 0.5])
    chances = jnp.exp(jax.nn.log_softmax(scores))

    def sampled(scores: jax.Array) -> jax.Array:
        return jnp.sum(chances * kl_terms(jax.nn.log_softmax(scores), reference, estimator))

    def exact(scores: jax.Array) -> jax.Array:
        policy = jax.nn.log_softmax(scores)
        return jnp.sum(jnp.exp(policy) * (policy - reference))

    np.testing.assert_allclose(jax.grad(sampled)(scores), jax.grad(exact)(scores), atol=1e-6)


def test_a_token_that_the_reference_holds_likely_does_not_overflow() -> None:
    assert np.isfinite(kl_terms(jnp.asarray([-300.0]), jnp.asarray([-0.1]), "k3")).all()
