"""The loss of a row, and its metrics: weighted sums over tokens, never means.

Axes: P token positions that the loss reads. Sums leave this module, so that rows of a batch add up
exactly; the learner divides once, by what the batch counts (aggregation.py).

    objective = sum of A+ x c x up + A- x c x down         surrogates.py; c is the correction
              - kl_coefficient x sum of weight x KL        penalties.py
              + entropy_coefficient x sum of weight x entropy

The correction c is an importance weight from the sampler's policy, held constant: 1, the token's
ratio or the product over its sequence, truncated at `ratio_cap` (Yao et al. 2025, as in
surrogates.py; the decoupled objective with the learner at the step's start between the two: Hilton
et al. 2021, arXiv:2110.00641, AReaL, arXiv:2505.24298). A sequence whose mean log-ratio is out of
bounds has c = 0; deviation from masked importance sampling (Liu et al. 2025, "When Speed Kills
Stability"): it still counts in the average, so that one rejection does not rescale the others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from patchgym.trainer.loss_config import LossConfig

from .penalties import kl_terms
from .sequences import sequence_means, sequence_sums
from .surrogates import Factors, cispo, clipped, divergence_masked, gated, plain, ppo, sequence_ppo


class RowTokens(NamedTuple):
    """What the loss reads of a row; [P] each."""

    logprobs: jax.Array
    """The learner's, nats: the gradient flows into these and the entropies."""
    entropies: jax.Array
    """Nats."""
    sampler_logprobs: jax.Array
    positive: jax.Array
    """Sum of the positive advantages, weighted, of the sequences that share the token."""
    negative: jax.Array
    """Sum of the negative ones."""
    sharing: jax.Array
    """Number of sequences that own the token: 0 for padding, which adds nothing."""
    weights: jax.Array
    """Sum of the token's weights in the average."""
    owners: jax.Array
    """Names the token's sequence, int32; read by losses over sequences."""
    proximal_logprobs: jax.Array | None = None
    """The learner's at the start of the step; None where it is the learner still."""
    reference_logprobs: jax.Array | None = None
    """The initial weights'; None without a KL penalty."""


class TokenSums(NamedTuple):
    """Sums over a row's loss tokens, each shared token counted once a sequence; scalars."""

    objective: jax.Array
    entropy: jax.Array
    """Nats."""
    ratio: jax.Array
    clipped: jax.Array
    """Tokens whose gradient the clip removed."""
    mismatch_kl: jax.Array
    """Nats: estimate of KL(sampler || learner), r - 1 - log r, never negative."""
    difference: jax.Array
    """Nats: sum of |learner's - sampler's log-probability|."""
    largest: jax.Array
    """Nats: the largest such difference; not a sum, rows take the maximum."""
    tokens: jax.Array
    truncated: jax.Array
    """Tokens whose importance weight was cut to the cap."""
    rejected: jax.Array
    """Tokens of sequences that were rejected."""
    reference_kl: jax.Array
    """Nats: estimate of KL(learner || initial weights); 0 without that penalty."""


def row_sums(config: LossConfig, tokens: RowTokens) -> TokenSums:
    """The objective, to be maximized, and the metrics of a row."""
    real = tokens.sharing > 0
    lag = _lag(config, tokens, real)
    factors = _factors(config, tokens, real)
    weight, capped, kept = _correction(config, tokens, real)
    positive, negative = tokens.positive, tokens.negative
    if weight is not None:
        positive, negative = positive * weight, negative * weight
    # A padded or zero-advantage token may have an infinite ratio; 0 * inf must not reach the sum.
    each = jnp.where(positive > 0, positive * factors.up, 0.0) + jnp.where(
        negative < 0, negative * factors.down, 0.0
    )
    objective = jnp.sum(jnp.where(real, each, 0.0))
    divergence = jnp.zeros(real.shape)
    if config.kl_coefficient > 0 and tokens.reference_logprobs is not None:
        divergence = kl_terms(tokens.logprobs, tokens.reference_logprobs, config.kl_estimator)
        divergence = jnp.where(real, divergence, 0.0)
        objective -= config.kl_coefficient * jnp.sum(divergence * tokens.weights)
    if config.entropy_coefficient > 0:
        bonus = jnp.where(real, tokens.entropies * tokens.weights, 0.0)
        objective += config.entropy_coefficient * jnp.sum(bonus)
    ratio = jnp.exp(lag)
    cut = (factors.cut_up & (positive > 0)) | (factors.cut_down & (negative < 0))

    def total(values: jax.Array) -> jax.Array:
        values = jax.lax.stop_gradient(values)
        return jnp.sum(jnp.where(real, values * tokens.sharing, 0.0))

    return TokenSums(
        objective=objective,
        entropy=total(tokens.entropies),
        ratio=total(ratio),
        clipped=total(cut.astype(jnp.float32)),
        mismatch_kl=total(jnp.expm1(lag) - lag),
        difference=total(jnp.abs(lag)),
        largest=jnp.max(jnp.abs(lag), initial=0.0),
        tokens=jnp.sum(tokens.sharing),
        truncated=total((factors.truncated | capped).astype(jnp.float32)),
        rejected=total(1.0 - kept.astype(jnp.float32)),
        reference_kl=total(divergence),
    )


def _lag(config: LossConfig, tokens: RowTokens, real: jax.Array) -> jax.Array:
    """Learner over sampler, log, [P]: 0 in the padding, and where no sampler is compared with."""
    if config.loss == "nll":
        return jnp.zeros(real.shape)
    now = jax.lax.stop_gradient(tokens.logprobs)
    return jnp.where(real, now - tokens.sampler_logprobs, 0.0)


def _factors(config: LossConfig, tokens: RowTokens, real: jax.Array) -> Factors:
    """What `config.loss` multiplies advantages with."""
    # Padding must have no gradient either: a 0 there would meet the infinite slope of a ratio.
    logprobs = jnp.where(real, tokens.logprobs, 0.0)
    base = tokens.sampler_logprobs
    if config.proximal == "step_start":
        base = _proximal(tokens)
    log_ratio = jnp.where(real, jax.lax.stop_gradient(logprobs) - base, 0.0)
    clip = {"clip_low": config.clip_low, "clip_high": config.clip_high}
    match config.loss:
        case "clipped":
            return clipped(logprobs, log_ratio, **clip, ratio_cap=config.ratio_cap)
        case "ppo":
            return ppo(logprobs, log_ratio, **clip, dual_clip=config.dual_clip)
        case "cispo":
            return cispo(logprobs, log_ratio, ratio_cap=config.ratio_cap)
        case "gspo" | "gspo_token":
            by_token = config.loss == "gspo_token"
            return sequence_ppo(logprobs, log_ratio, tokens.owners, real, **clip, by_token=by_token)
        case "sapo":
            sharpness = {"positive": config.sapo_positive, "negative": config.sapo_negative}
            return gated(logprobs, log_ratio, **sharpness)
        case "dppo":
            limits = {"limit": config.divergence_limit, "ratio_cap": config.ratio_cap}
            return divergence_masked(logprobs, log_ratio, **limits)
        case "reinforce" | "nll":
            return plain(logprobs)


def _proximal(tokens: RowTokens) -> jax.Array:
    """The learner at the start of the step, [P]."""
    start = tokens.proximal_logprobs
    return jax.lax.stop_gradient(tokens.logprobs) if start is None else start


def _correction(
    config: LossConfig, tokens: RowTokens, real: jax.Array
) -> tuple[jax.Array | None, jax.Array, jax.Array]:
    """Importance weight (None for 1), whether it was truncated, whether the token is kept: [P]."""
    weight, capped, kept = None, jnp.zeros(real.shape, jnp.bool_), jnp.ones(real.shape, jnp.bool_)
    decoupled = config.proximal == "step_start"
    target = _proximal(tokens) if decoupled else jax.lax.stop_gradient(tokens.logprobs)
    lag = jnp.where(real, target - tokens.sampler_logprobs, 0.0)
    if config.correction != "none":
        if config.correction == "sequence":
            ratio = jnp.exp(sequence_sums(lag, tokens.owners, real))
        else:
            ratio = jnp.exp(lag)
        weight, capped = jnp.minimum(ratio, config.ratio_cap), ratio > config.ratio_cap
    if config.reject_low > 0 or config.reject_high > 0:
        mean = sequence_means(lag, tokens.owners, real)
        low = -config.reject_low if config.reject_low > 0 else -jnp.inf
        high = config.reject_high if config.reject_high > 0 else jnp.inf
        kept = (mean >= low) & (mean <= high)
        weight = kept.astype(jnp.float32) if weight is None else jnp.where(kept, weight, 0.0)
    return weight, capped, kept
