"""The policy loss: pure functions of log-probabilities, and log-probabilities of hidden states.

Axes: P token positions that the loss reads, d residual width, V vocabulary. Weighted sums, not
means, leave this module, so that rows of a batch add up exactly; the learner divides once.

What the loss is, for one sampled token with ratio r = learner probability / sampler probability:

    advantage > 0:  A * min(r, 1 + clip_high)       advantage < 0:  A * max(r, 1 - clip_low)
    loss = - sum over tokens / (sequences * length_normalizer)

with the importance weight r truncated at `ratio_cap` where it multiplies the gradient.

- Clipped surrogate: PPO, Schulman et al. 2017, arXiv:1707.06347. Deviation: the proximal policy is
  the sampler's (below).
- Clip 0.2 / 0.28: DAPO, Yu et al. 2025, arXiv:2503.14476. No deviation.
- Truncated importance sampling, cap 2: Yao et al. 2025, "Your Efficient RL Framework Secretly
  Brings You Off-Policy RL Training". Deviation: one ratio, no second weight beside it (below).
- Constant length normalizer: Dr. GRPO, Liu et al. 2025, arXiv:2503.20783. No deviation.
- No KL and no entropy bonus: DAPO. Both are metrics only.

Why one ratio. A learner that takes one optimizer step a batch has no policy between the sampler's
and its own: a "proximal" policy recomputed at the start of the step equals the learner's, its ratio
is 1, and its clip never acts. So the proximal policy is the one that sampled, and r covers both
staleness (where the clip is meant to act) and the numerical mismatch of the two implementations.
The clip bounds r above only for a positive advantage; for a negative one the cap does, by weighting
the token's gradient with min(r, cap) (it is not dropped: it says that the token got likelier).

A token that several sequences of a group share (same prefix, same stored log-probability) carries
the sum of their positive advantages and the sum of their negative ones; the sum of the members'
surrogates is then exact.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


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
    tokens: jax.Array


def surrogate(
    logprobs: jax.Array,
    sampler_logprobs: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    ratio_cap: float,
) -> jax.Array:
    """Objective of each token: all arguments [P] -> [P], to be maximized.

    `positive` >= 0 and `negative` <= 0 are the sums of the advantages of the sequences that share
    the token. Gradient flows into `logprobs` alone.
    """
    ratio = jnp.exp(jax.lax.stop_gradient(logprobs) - sampler_logprobs)
    # The value of this is the truncated ratio, its gradient the truncated ratio times that of log p
    # (min(exp(..), cap) would have none past the cap).
    unit = jnp.exp(logprobs - jax.lax.stop_gradient(logprobs))
    weight = jnp.minimum(ratio, ratio_cap) * unit
    upper = jnp.where(ratio > 1 + clip_high, min(1 + clip_high, ratio_cap), weight)
    lower = jnp.where(ratio < 1 - clip_low, 1 - clip_low, weight)
    # A padded or zero-advantage token may have an infinite ratio; 0 * inf must not reach the sum.
    return jnp.where(positive > 0, positive * upper, 0.0) + jnp.where(
        negative < 0, negative * lower, 0.0
    )


def token_sums(
    logprobs: jax.Array,
    entropies: jax.Array,
    sampler_logprobs: jax.Array,
    positive: jax.Array,
    negative: jax.Array,
    sharing: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    ratio_cap: float,
) -> TokenSums:
    """The objective and the metrics of a row, summed: all arrays [P] -> scalars.

    `sharing` is the number of sequences that own the token: 0 for padding, which adds nothing.
    """
    objective = surrogate(
        logprobs,
        sampler_logprobs,
        positive,
        negative,
        clip_low=clip_low,
        clip_high=clip_high,
        ratio_cap=ratio_cap,
    )
    real = sharing > 0
    log_ratio = jnp.where(real, jax.lax.stop_gradient(logprobs) - sampler_logprobs, 0.0)
    ratio = jnp.exp(log_ratio)
    cut = ((ratio > 1 + clip_high) & (positive > 0)) | ((ratio < 1 - clip_low) & (negative < 0))

    def total(values: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(real, values * sharing, 0.0))

    return TokenSums(
        objective=jnp.sum(jnp.where(real, objective, 0.0)),
        entropy=total(jax.lax.stop_gradient(entropies)),
        ratio=total(ratio),
        clipped=total(cut.astype(jnp.float32)),
        mismatch_kl=total(jnp.expm1(log_ratio) - log_ratio),
        tokens=jnp.sum(sharing),
    )


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def token_logprobs(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """Log-probability and entropy (nats) of `targets` [P] int32 -> ([P], [P]).

    `hidden` [P, d] are the states that predict the targets, `head` is [V, d] (logits are
    `hidden @ head.T`). Logits exist for `chunk` positions at a time, forward and backward, so no
    [P, V] array is ever kept; the price is one more head product in the backward pass. The entropy
    is a metric: it passes no gradient. P must be a multiple of `chunk`, or at most `chunk`.
    """
    return _logprobs_forward(hidden, head, targets, chunk)[0]


_Arrays = tuple[jax.Array, ...]


def _logprobs_forward(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, chunk: int
) -> tuple[tuple[jax.Array, jax.Array], _Arrays]:
    """Forward rule: also keeps the log of the normalizer [P]."""

    def part(rows: _Arrays) -> tuple[jax.Array, ...]:
        states, chosen = rows
        logits = states @ head.T
        top = jnp.max(logits, axis=-1)
        weights = jnp.exp(logits - top[:, None])
        total = jnp.sum(weights, axis=-1)
        normalizer = top + jnp.log(total)
        mean = jnp.sum(weights * logits, axis=-1) / total
        return _at(logits, chosen) - normalizer, normalizer - mean, normalizer

    logprobs, entropies, normalizers = _map_chunks(part, (hidden, targets), chunk)
    return (logprobs, entropies), (hidden, head, targets, normalizers)


def _logprobs_backward(
    chunk: int, saved: _Arrays, cotangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, np.ndarray]:
    """Backward rule: d log p / d logits is onehot - softmax, computed again chunk by chunk."""
    hidden, head, targets, normalizers = saved
    size = min(chunk, hidden.shape[0])

    def part(gradient: jax.Array, rows: _Arrays) -> tuple[jax.Array, jax.Array]:
        states, chosen, normalizer, cotangent = rows
        logits = states @ head.T
        hit = jnp.arange(head.shape[0], dtype=jnp.int32) == chosen[:, None]
        slope = (hit - jnp.exp(logits - normalizer[:, None])) * cotangent[:, None]
        return gradient + slope.T @ states, slope @ head

    rows = _chunked((hidden, targets, normalizers, cotangents[0]), size)
    if hidden.shape[0] == size:
        gradient, states = part(jnp.zeros_like(head), tuple(x[0] for x in rows))
    else:
        gradient, states = jax.lax.scan(part, jnp.zeros_like(head), rows)
    # Integer targets have no tangent space; JAX wants float0 for them.
    return states.reshape(hidden.shape), gradient, np.zeros(targets.shape, jax.dtypes.float0)


def _at(logits: jax.Array, chosen: jax.Array) -> jax.Array:
    """`logits[i, chosen[i]]` by comparison and sum: a vocabulary split over devices stays split."""
    hit = jnp.arange(logits.shape[1], dtype=jnp.int32) == chosen[:, None]
    return jnp.sum(jnp.where(hit, logits, 0.0), axis=-1)


def _chunked(arrays: _Arrays, size: int) -> _Arrays:
    """Split the leading axis of each array: [P, ...] -> [P / size, size, ...]."""
    return tuple(x.reshape(x.shape[0] // size, size, *x.shape[1:]) for x in arrays)


def _map_chunks(
    part: Callable[[_Arrays], tuple[jax.Array, ...]], rows: _Arrays, chunk: int
) -> tuple[jax.Array, ...]:
    """`part` over pieces of the leading axis, results joined again."""
    length = rows[0].shape[0]
    if length <= chunk:
        return part(rows)
    results = jax.lax.map(part, _chunked(rows, chunk))
    return tuple(x.reshape(length, *x.shape[2:]) for x in results)


token_logprobs.defvjp(_logprobs_forward, _logprobs_backward)
