"""The reference: all scores at once, gradients by JAX. Memory O(T^2); for tests and short rows."""

import jax
import jax.numpy as jnp

from .mask import MASKED


def attend_dense(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    seen: jax.Array,
    scale: float,
) -> jax.Array:
    """Queries [B, K, G, Tq, D] over keys and values [B, K, T, D] -> [B, K, G, Tq, D].

    `seen` [B, Tq, T] bool is the mask.

    Scores, softmax and sums are float32 whatever the inputs; the result has the type of `q`.
    """
    scores = jnp.einsum("bkgqd,bksd->bkgqs", q, k, preferred_element_type=jnp.float32) * scale
    scores = jnp.where(seen[:, None, None], scores, MASKED)
    mixing = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    mixed = jnp.einsum("bkgqs,bksd->bkgqd", mixing, v, preferred_element_type=jnp.float32)
    return mixed.astype(q.dtype)
