"""KL divergence from a reference policy, estimated token by token from samples.

Schulman, "Approximating KL Divergence", 2020; k3 as GRPO uses it, Shao et al. 2024,
arXiv:2402.03300. Deviations: the expectation is over the sampler's tokens and is not corrected for
staleness; the gradient of k1 is that of the expectation it estimates, (log-ratio) x that of log p,
not that of the sample, which is 0 on average and holds nothing back.
"""

import jax
import jax.numpy as jnp

from patchgym.trainer.loss_config import KLEstimator


def kl_terms(logprobs: jax.Array, reference: jax.Array, estimator: KLEstimator) -> jax.Array:
    """Estimate of KL(learner || reference), nats, at each token: [P], [P] -> [P].

    With d = `logprobs` - `reference`: k1 is d, k2 is d^2 / 2, k3 is exp(-d) - 1 + d.
    """
    difference = logprobs - reference
    if estimator == "k2":
        return difference * difference / 2
    if estimator == "k3":
        # Past 20 nats the exponential is cut, so that one token can't make the loss infinite.
        return jnp.expm1(jnp.minimum(-difference, 20.0)) + difference
    held = jax.lax.stop_gradient(difference)
    return held * jnp.exp(logprobs - jax.lax.stop_gradient(logprobs))
