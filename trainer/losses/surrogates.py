"""What an advantage is multiplied with, one function a loss.

Axes: P token positions that the loss reads. `log_ratio` is the log of the learner's probability
over that of the policy the loss is relative to; r is the ratio. Every function returns `Factors`,
for positive and negative advantages apart: a token that several sequences share (same prefix, same
stored log-probability) carries the sum of their positive advantages and the sum of their negative
ones, each is multiplied with its own factor, and the sum of the members' objectives is then exact.

- `clipped` (default): min(r, 1 + clip_high) and max(r, 1 - clip_low), with r truncated at
  `ratio_cap` where it multiplies the gradient. PPO, Schulman et al. 2017, arXiv:1707.06347, with
  DAPO's bounds, Yu et al. 2025, arXiv:2503.14476, and truncated importance sampling, Yao et al.
  2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training". Deviation: one
  ratio, no second weight beside it (docs/learner.md says why).
- `ppo`: min(r A, clip(r) A). arXiv:1707.06347. No deviation. With `dual_clip` c also at most c for
  A < 0: Ye et al. 2020, arXiv:1912.09729. No deviation.
- `plain`: log p. REINFORCE, as in RLOO, Ahmadian et al. 2024, arXiv:2402.14740; also supervised
  training. Deviation from RLOO: the sum over tokens is averaged as for every other loss.
- `cispo`: truncated ratio, held constant, times log p. CISPO, MiniMax 2025, arXiv:2506.13585.
  Deviation: no lower bound (the paper's experiments have none either).
- `sequence_ppo`: `ppo` with one ratio a sequence, exp(mean log-ratio). GSPO and GSPO-token, Zheng
  et al. 2025, arXiv:2507.18071. Deviation: a segment of a rewritten history is a sequence.
- `gated`: (4 / t) sigmoid(t (r - 1)), t by the advantage's sign. SAPO, Gao et al. 2025,
  arXiv:2511.20347. No deviation.
- `divergence_masked`: r, no gradient where the token's probability has moved by more than a limit,
  in the direction in which the advantage pushes. DPPO, Qi et al. 2026, arXiv:2602.04879, the
  binary total variation. Deviation: r is truncated at `ratio_cap`, as in `clipped`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .sequences import sequence_means

_LARGEST = 20.0
"""Nats: log-ratios are cut here where nothing else bounds the ratio, so that none is infinite."""


class Factors(NamedTuple):
    """What the advantages of a token are multiplied with; [P] each."""

    up: jax.Array
    """For positive advantages."""
    down: jax.Array
    """For negative ones."""
    cut_up: jax.Array
    """True where `up` passes no gradient."""
    cut_down: jax.Array
    """True where `down` passes none."""
    truncated: jax.Array
    """True where a cap made the weight smaller."""


def clipped(
    logprobs: jax.Array,
    log_ratio: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    ratio_cap: float,
) -> Factors:
    """The default: `logprobs`, `log_ratio` [P]; gradient flows into `logprobs` alone."""
    ratio = jnp.exp(jax.lax.stop_gradient(log_ratio))
    # The value of this is the truncated ratio, its gradient the truncated ratio times that of log p
    # (min(exp(..), cap) would have none past the cap).
    weight = jnp.minimum(ratio, ratio_cap) * _unit(logprobs)
    above, below = ratio > 1 + clip_high, ratio < 1 - clip_low
    return Factors(
        up=jnp.where(above, min(1 + clip_high, ratio_cap), weight),
        down=jnp.where(below, 1 - clip_low, weight),
        cut_up=above,
        cut_down=below,
        truncated=ratio > ratio_cap,
    )


def ppo(
    logprobs: jax.Array,
    log_ratio: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
) -> Factors:
    """PPO's clip: `logprobs`, `log_ratio` [P]; gradient flows into `logprobs` alone."""
    return _clip(_ratio(log_ratio), _unit(logprobs), clip_low, clip_high, dual_clip)


def sequence_ppo(
    logprobs: jax.Array,
    log_ratio: jax.Array,
    owners: jax.Array,
    real: jax.Array,
    *,
    clip_low: float,
    clip_high: float,
    by_token: bool,
) -> Factors:
    """PPO's clip of a sequence's ratio: all [P]; `owners` int32 names the sequence.

    With `by_token` (GSPO-token) the sequence's ratio is a constant on each token, whose own log
    probability passes the gradient; without (GSPO) the gradient flows through the mean. Both have
    one gradient where all tokens of a sequence have one advantage.
    """
    mean = sequence_means(log_ratio, owners, real)
    ratio = _ratio(mean)
    if by_token:
        unit = _unit(logprobs)
    else:
        unit = _unit(sequence_means(logprobs, owners, real))
    return _clip(ratio, unit, clip_low, clip_high, 0.0)


def plain(logprobs: jax.Array) -> Factors:
    """Log-probabilities [P] as they are."""
    never = jnp.zeros(logprobs.shape, jnp.bool_)
    return Factors(logprobs, logprobs, never, never, never)


def cispo(logprobs: jax.Array, log_ratio: jax.Array, *, ratio_cap: float) -> Factors:
    """Log-probabilities, weighted: `logprobs`, `log_ratio` [P]."""
    ratio = jnp.exp(jax.lax.stop_gradient(log_ratio))
    weighted = jnp.minimum(ratio, ratio_cap) * logprobs
    never = jnp.zeros(logprobs.shape, jnp.bool_)
    return Factors(weighted, weighted, never, never, ratio > ratio_cap)


def gated(
    logprobs: jax.Array, log_ratio: jax.Array, *, positive: float, negative: float
) -> Factors:
    """SAPO's gates, of temperatures `positive` and `negative`: `logprobs`, `log_ratio` [P]."""
    ratio = _ratio(log_ratio) * _unit(logprobs)
    never = jnp.zeros(logprobs.shape, jnp.bool_)

    def gate(sharpness: float) -> jax.Array:
        return jax.nn.sigmoid(sharpness * (ratio - 1)) * (4 / sharpness)

    return Factors(gate(positive), gate(negative), never, never, never)


def divergence_masked(
    logprobs: jax.Array, log_ratio: jax.Array, *, limit: float, ratio_cap: float
) -> Factors:
    """DPPO's mask: `logprobs`, `log_ratio` [P]; the other policy's are their difference."""
    now = jnp.exp(jax.lax.stop_gradient(logprobs))
    before = jnp.exp(jax.lax.stop_gradient(logprobs - log_ratio))
    ratio = jnp.exp(jax.lax.stop_gradient(log_ratio))
    constant = jnp.minimum(ratio, ratio_cap)
    weight = constant * _unit(logprobs)
    far = jnp.abs(now - before) > limit
    above, below = far & (ratio > 1), far & (ratio < 1)
    return Factors(
        up=jnp.where(above, constant, weight),
        down=jnp.where(below, constant, weight),
        cut_up=above,
        cut_down=below,
        truncated=ratio > ratio_cap,
    )


def _clip(
    ratio: jax.Array, unit: jax.Array, clip_low: float, clip_high: float, dual_clip: float
) -> Factors:
    weight = ratio * unit
    above, below = ratio > 1 + clip_high, ratio < 1 - clip_low
    down = jnp.where(below, 1 - clip_low, weight)
    far = ratio > dual_clip if dual_clip else jnp.zeros(ratio.shape, jnp.bool_)
    return Factors(
        up=jnp.where(above, 1 + clip_high, weight),
        down=jnp.where(far, dual_clip, down),
        cut_up=above,
        cut_down=below | far,
        truncated=jnp.zeros(ratio.shape, jnp.bool_),
    )


def _unit(logprobs: jax.Array) -> jax.Array:
    """1, with the gradient of `logprobs`."""
    return jnp.exp(logprobs - jax.lax.stop_gradient(logprobs))


def _ratio(log_ratio: jax.Array) -> jax.Array:
    return jnp.exp(jnp.minimum(jax.lax.stop_gradient(log_ratio), _LARGEST))
