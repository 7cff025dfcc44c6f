"""Arrays that XLA writes to memory instead of computing them again where they are read."""

from __future__ import annotations

import jax


@jax.custom_vjp
def made_once(x: jax.Array) -> jax.Array:
    """`x`, for which XLA writes an array: it would compute it in every tile of the next product."""
    written: jax.Array = jax.lax.optimization_barrier(x)
    return written


made_once.defvjp(lambda x: (made_once(x), None), lambda _, slope: (slope,))


@jax.custom_vjp
def made_once_backward(x: jax.Array) -> jax.Array:
    """`x`, whose gradient is `made_once`."""
    return x


made_once_backward.defvjp(
    lambda x: (x, None), lambda _, slope: (jax.lax.optimization_barrier(slope),)
)
