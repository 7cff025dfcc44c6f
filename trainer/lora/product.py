"""One product with an adapted matrix, and a gradient that never makes the matrix's own.

Axes as in `adapters`. Differentiating x W' through W' = W + s A B would make dW = x^T dy [in, out],
as much work as the forward, only to multiply it by B and A. Multiplied in the other order,

    dA = s x^T (dy B^T)        dB = s (x A)^T dy        dx = dy W'^T

costs two thirds of it, and W' is made again rather than kept.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from patchgym.trainer.model.barriers import made_once

_EXACT = jax.lax.Precision.HIGHEST
"""Float32 products in float32 also on accelerators, which otherwise round to bfloat16 first."""

_Saved = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def merged_matrix(
    weight: jax.Array,
    a: jax.Array,
    b: jax.Array,
    scale: float,
    dtype: DTypeLike,
    *,
    factors: DTypeLike = jnp.float32,
) -> jax.Array:
    """`weight` [..., in, out] + scale * a [..., in, r] @ b [..., r, out], in `dtype`.

    A and B are rounded to the type `factors`; what they make is summed and added in float32, and
    rounded once. XLA writes the result to memory: it would merge anew in every tile of the product
    that reads it.
    """
    a, b = a.astype(factors), b.astype(factors)
    product = jnp.matmul(a, b, precision=_EXACT, preferred_element_type=jnp.float32)
    merged = (weight.astype(jnp.float32) + scale * product).astype(dtype)
    return made_once(merged)


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def merged_product(
    x: jax.Array, weight: jax.Array, a: jax.Array, b: jax.Array, scale: float
) -> jax.Array:
    """`x` [..., in] times `merged_matrix` in the type of `x`: [..., out].

    A and B are multiplied in that type, too, as servers of adapters do: in bfloat16 at most a part
    in 128 of what they add is lost, less than the rounding of W' while that is the larger; in
    float32 their product of rank r takes libtpu 0.0.42 longer than the one with all tokens.
    Gradients of `x`, of `a` [in, r] and of `b` [r, out], the latter summed in float32; none of
    `weight` [in, out], which is frozen.
    """
    return x @ _matrix(weight, a, b, scale, x.dtype)


def _matrix(
    weight: jax.Array, a: jax.Array, b: jax.Array, scale: float, kind: DTypeLike
) -> jax.Array:
    return merged_matrix(weight, a, b, scale, kind, factors=kind)


def _forward(
    x: jax.Array, weight: jax.Array, a: jax.Array, b: jax.Array, scale: float
) -> tuple[jax.Array, _Saved]:
    return x @ _matrix(weight, a, b, scale, x.dtype), (x, weight, a, b)


def _backward(
    scale: float, saved: _Saved, dy: jax.Array
) -> tuple[jax.Array, None, jax.Array, jax.Array]:
    x, weight, a, b = saved
    dx = dy @ _matrix(weight, a, b, scale, dy.dtype).T
    narrow_x = x @ a.astype(x.dtype)  # [..., r]
    narrow_dy = dy @ b.astype(dy.dtype).T
    return dx, None, scale * _outer(x, narrow_dy, a), scale * _outer(narrow_x, dy, b)


def _outer(left: jax.Array, right: jax.Array, like: jax.Array) -> jax.Array:
    """left^T right over all rows and tokens, summed in float32, in the type of `like`."""
    total = jnp.einsum("...i,...o->io", left, right, preferred_element_type=jnp.float32)
    return total.astype(like.dtype)


merged_product.defvjp(_forward, _backward)
