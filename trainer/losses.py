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

from functools import partial
from typing import Any, NamedTuple

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
    difference: jax.Array
    """Nats: sum of |learner's - sampler's log-probability|."""
    largest: jax.Array
    """Nats: the largest such difference; not a sum, rows take the maximum."""
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
        difference=total(jnp.abs(log_ratio)),
        largest=jnp.max(jnp.abs(log_ratio), initial=0.0),
        tokens=jnp.sum(sharing),
    )


def token_logprobs(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, count: jax.Array, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """Log-probability and entropy (nats) of the first `count` of `targets` [P] -> ([P], [P]).

    `hidden` [P, d] are the states that predict the targets, `head` is [V, d] (logits are
    `hidden @ head.T`), `count` an int32 scalar; from the next multiple of `chunk` on, results are 0
    and nothing is computed, so one program serves any count. P is a multiple of `chunk`.

    Logits exist for `chunk` positions at a time, forward and backward: no [P, V] array is ever
    kept. The price is one more head product in the backward pass. The entropy is a metric: it
    passes no gradient.
    """
    # Any: checkers don't agree on the type of a custom_vjp function.
    result: Any = _logprobs(hidden, head, targets, count, chunk)
    logprobs, entropies = result
    return logprobs, entropies


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _logprobs(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, count: jax.Array, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """`token_logprobs`, with its own derivative."""
    return _logprobs_forward(hidden, head, targets, count, chunk)[0]


_Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _logprobs_forward(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, count: jax.Array, chunk: int
) -> tuple[tuple[jax.Array, jax.Array], _Saved]:
    """Forward rule: also keeps the log of the normalizer [P]."""

    def piece(index: jax.Array, results: jax.Array) -> jax.Array:
        start = index * chunk
        logits = _slice(hidden, start, chunk) @ head.T
        top = jnp.max(logits, axis=-1)
        weights = jnp.exp(logits - top[:, None])
        total = jnp.sum(weights, axis=-1)
        normalizer = top + jnp.log(total)
        mean = jnp.sum(weights * logits, axis=-1) / total
        chosen = jnp.sum(jnp.where(_hits(head, targets, start, chunk), logits, 0.0), axis=-1)
        found = jnp.stack([chosen - normalizer, normalizer - mean, normalizer])
        return jax.lax.dynamic_update_slice(results, found, (0, start))

    results = jnp.zeros((3, hidden.shape[0]), jnp.float32)
    logprobs, entropies, normalizers = jax.lax.fori_loop(0, -(-count // chunk), piece, results)
    return (logprobs, entropies), (hidden, head, targets, count, normalizers)


def _logprobs_backward(
    chunk: int, saved: _Saved, cotangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, np.ndarray, np.ndarray]:
    """Backward rule: d log p / d logits is onehot - softmax, computed again chunk by chunk."""
    hidden, head, targets, count, normalizers = saved

    def piece(
        index: jax.Array, gradients: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        start = index * chunk
        states = _slice(hidden, start, chunk)
        softmax = jnp.exp(states @ head.T - _slice(normalizers, start, chunk)[:, None])
        slope = _hits(head, targets, start, chunk) - softmax
        slope *= _slice(cotangents[0], start, chunk)[:, None]
        to_hidden = jax.lax.dynamic_update_slice(gradients[0], slope @ head, (start, 0))
        return to_hidden, gradients[1] + slope.T @ states

    start = (jnp.zeros_like(hidden), jnp.zeros_like(head))
    to_hidden, to_head = jax.lax.fori_loop(0, -(-count // chunk), piece, start)
    # Integers have no tangent space; JAX wants float0 for them.
    return to_hidden, to_head, _no_tangent(targets), _no_tangent(count)


def _slice(array: jax.Array, start: jax.Array, size: int) -> jax.Array:
    """`size` entries of the leading axis from `start`."""
    return jax.lax.dynamic_slice_in_dim(array, start, size)


def _hits(head: jax.Array, targets: jax.Array, start: jax.Array, size: int) -> jax.Array:
    """[size, V]: true at each target. A comparison keeps a vocabulary split over devices split."""
    ids = jnp.arange(head.shape[0], dtype=jnp.int32)
    return ids == _slice(targets, start, size)[:, None]


def _no_tangent(array: jax.Array) -> np.ndarray:
    return np.zeros(array.shape, jax.dtypes.float0)


_logprobs.defvjp(_logprobs_forward, _logprobs_backward)
