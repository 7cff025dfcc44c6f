"""The three kernels: what one step does with a block of queries and a block of keys.

Axes inside a kernel: G query heads, n tokens a block, D head size. Blocks of queries bring
positions [1, n], q [G, n, D] and, backward, the cotangent [G, n, D], normalizer and offset [G, n];
blocks of keys bring ends and positions [1, n], k and v [n, D].

Scores lie [query, key] where queries stay, [key, query] where keys stay, so that no matrix is
transposed; the few vectors that must lie along the other axis are turned once, when they arrive.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from .mask import MASKED, sees
from .tpu_grid import LANES, Options, Ref, Step

Refs = Sequence[Ref]


def forward_kernel(
    options: Options, step: Step, queries: Refs, keys: Refs, results: Refs, scratch: Refs
) -> None:
    """Outcome [G, n, D] and log normalizer [G, n] of the query block that stays."""
    positions, q = queries
    k, v = keys[2:]
    out, normalizer = results
    top, total, mixed, column = scratch
    heads = range(q.shape[0])

    @pl.when(step.first)
    def _() -> None:
        top[...] = jnp.full(top.shape, MASKED, jnp.float32)
        total[...] = jnp.zeros(total.shape, jnp.float32)
        mixed[...] = jnp.zeros(mixed.shape, jnp.float32)
        column[...] = _column(positions[...])

    @pl.when(step.live)
    def _() -> None:
        seen = _seen_by_queries(options, step, column, keys)
        for head in heads:
            scores = _rows_by_rows(q[head], k[...]) * options.scale
            scores = jnp.where(seen, scores, MASKED)
            before = top[head]
            higher = jnp.maximum(before, scores.max(axis=1, keepdims=True))
            weights = jnp.exp(scores - higher[:, :1])
            fade = jnp.exp(before - higher)
            top[head] = higher
            total[head] = fade * total[head] + weights.sum(axis=1, keepdims=True)
            added = _rows_by_columns(weights.astype(v.dtype), v[...])
            mixed[head] = fade[:, :1] * mixed[head] + added

    @pl.when(step.last)
    def _() -> None:
        for head in heads:
            out[head] = (mixed[head] / total[head][:, :1]).astype(out.dtype)
            normalizer[head : head + 1] = (top[head] + jnp.log(total[head])).T[:1]


def query_gradient_kernel(
    options: Options, step: Step, queries: Refs, keys: Refs, results: Refs, scratch: Refs
) -> None:
    """dq [G, n, D] of the query block that stays."""
    positions, q, cotangent, normalizer, offset = queries
    k, v = keys[2:]
    (dq,) = results
    normalizers, offsets, sums, column = scratch
    heads = range(q.shape[0])

    @pl.when(step.first)
    def _() -> None:
        sums[...] = jnp.zeros(sums.shape, jnp.float32)
        column[...] = _column(positions[...])
        for head in heads:
            normalizers[head] = _column(normalizer[head : head + 1])
            offsets[head] = _column(offset[head : head + 1])

    @pl.when(step.live)
    def _() -> None:
        seen = _seen_by_queries(options, step, column, keys)
        for head in heads:
            scores = _rows_by_rows(q[head], k[...]) * options.scale
            mixing = jnp.exp(jnp.where(seen, scores, MASKED) - normalizers[head][:, :1])
            slope = _rows_by_rows(cotangent[head], v[...]) - offsets[head][:, :1]
            sums[head] += _rows_by_columns((mixing * slope).astype(k.dtype), k[...])

    @pl.when(step.last)
    def _() -> None:
        dq[...] = (sums[...] * options.scale).astype(dq.dtype)


def key_gradient_kernel(
    options: Options, step: Step, keys: Refs, queries: Refs, results: Refs, scratch: Refs
) -> None:
    """dk and dv [n, D] of the key block that stays, summed over its query heads."""
    ends, positions, k, v = keys
    q, cotangent, normalizer, offset = queries[1:]
    dk, dv = results
    key_sums, value_sums, ends_column, positions_column = scratch

    @pl.when(step.first)
    def _() -> None:
        key_sums[...] = jnp.zeros(key_sums.shape, jnp.float32)
        value_sums[...] = jnp.zeros(value_sums.shape, jnp.float32)
        ends_column[...] = _column(ends[...])
        positions_column[...] = _column(positions[...])

    @pl.when(step.live)
    def _() -> None:
        seen = _seen_by_keys(options, step, ends_column, positions_column, queries)
        for head in range(q.shape[0]):
            scores = _rows_by_rows(k[...], q[head]) * options.scale
            mixing = jnp.exp(jnp.where(seen, scores, MASKED) - normalizer[head : head + 1])
            value_sums[...] += _rows_by_columns(mixing.astype(v.dtype), cotangent[head])
            slope = _rows_by_rows(v[...], cotangent[head]) - offset[head : head + 1]
            key_sums[...] += _rows_by_columns((mixing * slope).astype(q.dtype), q[head])

    @pl.when(step.last)
    def _() -> None:
        dk[...] = (key_sums[...] * options.scale).astype(dk.dtype)
        dv[...] = value_sums[...].astype(dv.dtype)


def _seen_by_queries(options: Options, step: Step, column: Ref, keys: Refs) -> jax.Array:
    """[query, key] bool; `column` [n, LANES] holds the queries' positions."""
    ends, positions = keys[:2]
    shape = (options.block, options.block)
    return sees(
        step.outer * options.block + jax.lax.broadcasted_iota(jnp.int32, shape, 0),
        step.inner * options.block + jax.lax.broadcasted_iota(jnp.int32, shape, 1),
        ends[...],
        column[:, :1],
        positions[...],
        options.window,
    )


def _seen_by_keys(
    options: Options, step: Step, ends: Ref, positions: Ref, queries: Refs
) -> jax.Array:
    """[key, query] bool; `ends` and `positions` [n, LANES] are the keys'."""
    shape = (options.block, options.block)
    return sees(
        step.inner * options.block + jax.lax.broadcasted_iota(jnp.int32, shape, 1),
        step.outer * options.block + jax.lax.broadcasted_iota(jnp.int32, shape, 0),
        ends[:, :1],
        queries[0][...],
        positions[:, :1],
        options.window,
    )


def _column(row: jax.Array) -> jax.Array:
    """A row [1, n] as a column, repeated over the lanes: [n, LANES]."""
    return jnp.broadcast_to(row, (LANES, row.shape[1])).T


def _rows_by_rows(first: jax.Array, second: jax.Array) -> jax.Array:
    """[a, D] and [b, D] -> [a, b] float32."""
    return _product(first, second, 1)


def _rows_by_columns(first: jax.Array, second: jax.Array) -> jax.Array:
    """[a, b] and [b, D] -> [a, D] float32."""
    return _product(first, second, 0)


def _product(first: jax.Array, second: jax.Array, axis: int) -> jax.Array:
    """The product over axis 1 of `first` and `axis` of `second`; float32 is not rounded."""
    exact = first.dtype == jnp.float32
    return jax.lax.dot_general(
        first,
        second,
        (((1,), (axis,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST if exact else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )
