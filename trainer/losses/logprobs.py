"""Log-probabilities of hidden states, without an array of all logits.

Axes: P token positions that the loss reads, d residual width, V vocabulary.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from patchgym.trainer.parallel.manual import zeros


def token_logprobs(
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    count: jax.Array,
    chunk: int,
    *,
    entropy_slope: bool = False,
    split: tuple[str, ...] = (),
) -> tuple[jax.Array, jax.Array]:
    """Log-probability and entropy (nats) of the first `count` of `targets` [P] -> ([P], [P]).

    `hidden` [P, d] are the states that predict the targets, `head` is [V, d] (logits are
    `hidden @ head.T`), `count` an int32 scalar; from the next multiple of `chunk` on, results are 0
    and nothing is computed, so one program serves any count. P is a multiple of `chunk`. Logits,
    sums and the results are float32 whatever type `hidden` and `head` have.

    Logits exist for `chunk` positions at a time, forward and backward: no [P, V] array is ever
    kept. The price is one more head product in the backward pass. The entropy passes a gradient
    only with `entropy_slope`; otherwise it is a metric.

    Inside `shard_map`, `split` names the axes over which the vocabulary is split: `head` is then a
    rank's part of it, `targets` count from its first id (another rank's are out of range), and
    results are the whole vocabulary's. A rank's gradient of `hidden` is its part's share.
    """
    # Any: checkers don't agree on the type of a custom_vjp function.
    result: Any = _logprobs(hidden, head, targets, count, chunk, entropy_slope, split)
    logprobs, entropies = result
    return logprobs, entropies


@partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _logprobs(
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    count: jax.Array,
    chunk: int,
    entropy_slope: bool,
    split: tuple[str, ...],
) -> tuple[jax.Array, jax.Array]:
    """`token_logprobs`, with its own derivative."""
    return _logprobs_forward(hidden, head, targets, count, chunk, entropy_slope, split)[0]


_Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _logprobs_forward(
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    count: jax.Array,
    chunk: int,
    entropy_slope: bool,
    split: tuple[str, ...],
) -> tuple[tuple[jax.Array, jax.Array], _Saved]:
    """Forward rule: also keeps the log of the normalizer and the entropy, [P] each."""

    def piece(index: jax.Array, results: jax.Array) -> jax.Array:
        start = index * chunk
        logits = _product("pd,vd->pv", _slice(hidden, start, chunk), head)
        top = jnp.max(logits, axis=-1)
        top = jax.lax.pmax(top, split) if split else top
        weights = jnp.exp(logits - top[:, None])
        chosen = jnp.where(_hits(head, targets, start, chunk), logits, 0.0)
        sums = jnp.stack([part.sum(axis=-1) for part in (weights, weights * logits, chosen)])
        total, mean, chosen = jax.lax.psum(sums, split) if split else sums
        mean /= total
        normalizer = top + jnp.log(total)
        found = jnp.stack([chosen - normalizer, normalizer - mean, normalizer])
        return jax.lax.dynamic_update_slice(results, found, (0, start))

    results = zeros((3, hidden.shape[0]), like=hidden, but=split)
    logprobs, entropies, normalizers = jax.lax.fori_loop(0, -(-count // chunk), piece, results)
    return (logprobs, entropies), (hidden, head, targets, count, normalizers, entropies)


def _logprobs_backward(
    chunk: int,
    entropy_slope: bool,
    split: tuple[str, ...],
    saved: _Saved,
    cotangents: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array, np.ndarray, np.ndarray]:
    """Backward rule: d log p / d logits is onehot - softmax, computed again chunk by chunk.

    That of the entropy H is -softmax * (log softmax + H).
    """
    hidden, head, targets, count, normalizers, entropies = saved

    def piece(
        index: jax.Array, gradients: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        start = index * chunk
        states = _slice(hidden, start, chunk)
        scores = _product("pd,vd->pv", states, head)
        scores -= _slice(normalizers, start, chunk)[:, None]
        softmax = jnp.exp(scores)
        slope = _hits(head, targets, start, chunk) - softmax
        slope *= _slice(cotangents[0], start, chunk)[:, None]
        if entropy_slope:
            bonus = softmax * (scores + _slice(entropies, start, chunk)[:, None])
            slope -= bonus * _slice(cotangents[1], start, chunk)[:, None]
        slope = slope.astype(head.dtype)
        found = _product("pv,vd->pd", slope, head).astype(hidden.dtype)
        to_hidden = jax.lax.dynamic_update_slice(gradients[0], found, (start, 0))
        return to_hidden, gradients[1] + _product("pv,pd->vd", slope, states)

    begin = (jnp.zeros_like(hidden), zeros(head.shape, like=head))
    to_hidden, to_head = jax.lax.fori_loop(0, -(-count // chunk), piece, begin)
    # Integers have no tangent space; JAX wants float0 for them.
    return to_hidden, to_head.astype(head.dtype), _no_tangent(targets), _no_tangent(count)


def _product(axes: str, first: jax.Array, second: jax.Array) -> jax.Array:
    """`einsum` of two arrays, added up in float32."""
    return jnp.einsum(axes, first, second, preferred_element_type=jnp.float32)


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
