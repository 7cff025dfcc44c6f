"""Sums and means over the sequences of a row.

Axes: P token positions; `owners` [P] int32 names each token's sequence, in [0, P); `real` [P] is
false in the padding. No token may be shared by sequences here.
"""

import jax
import jax.numpy as jnp


def sequence_sums(values: jax.Array, owners: jax.Array, real: jax.Array) -> jax.Array:
    """At each token the sum of `values` [P] over its sequence: [P]."""
    return _totals(jnp.where(real, values, 0.0), owners)


def sequence_means(values: jax.Array, owners: jax.Array, real: jax.Array) -> jax.Array:
    """At each token the mean of `values` [P] over its sequence: [P]; 0 in the padding."""
    counts = _totals(real.astype(values.dtype), owners)
    means = sequence_sums(values, owners, real) / jnp.maximum(counts, 1)
    return jnp.where(real, means, 0.0)


def _totals(values: jax.Array, owners: jax.Array) -> jax.Array:
    return jax.ops.segment_sum(values, owners, num_segments=len(values))[owners]
