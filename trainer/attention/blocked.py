"""Attention by blocks in plain XLA, for CPU and GPU; blocks with nothing to see are skipped.

Axes: B rows, K key heads, G query heads a key head, T keys and Tq queries (whole blocks; all of the
row's queries or a part), D head size, n tokens a block. Rows are walked one by one, since each
visits other blocks.

Forward, for each query block, over the key blocks it visits, with running maximum m, sum l and
mixture o (Dao et al. 2022, FlashAttention, arXiv:2205.14135): for scores s,

    m' = max(m, s)    l' = e^(m - m') l + sum e^(s - m')    o' = e^(m - m') o + e^(s - m') v

Backward, for each key block, over the query blocks that visit it: probabilities are made again from
the kept normalizer m + log l. Deviation: dq is added up in the same pass (five products a pair of
blocks, not seven), which needs float32 room for one row's dq.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from patchgym.trainer.parallel.manual import zeros

from .mask import MASKED, visible_of
from .plan import BlockPlan
from .rows import Rows, gradients
from .visits import Visits

_Triple = tuple[jax.Array, jax.Array, jax.Array]


class _Pair(NamedTuple):
    """A block of queries and one of keys: places in the arrays, and which blocks of the row."""

    query: jax.Array
    key: jax.Array
    query_block: jax.Array
    key_block: jax.Array


class _Saved(NamedTuple):
    """What the backward pass reads: inputs and the outcome."""

    rows: Rows
    plan: BlockPlan
    mixed: jax.Array
    normalizer: jax.Array
    """[B, K, G, Tq] float32."""


def attend_blocked(rows: Rows, plan: BlockPlan, scale: float) -> jax.Array:
    """The mixture [B, K, G, Tq, D], of the type of `rows.q`.

    T and Tq are multiples of `plan.block`. The outcome and its normalizer are named `attention_out`
    and `attention_normalizer` for rematerialization policies.
    """
    # Any: checkers don't agree on the type of a custom_vjp function.
    mixed: Any = _attend(rows, plan, scale)
    return mixed  # type: ignore[no-any-return]


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _attend(rows: Rows, plan: BlockPlan, scale: float) -> jax.Array:
    """`attend_blocked`, with its own derivative."""
    return _forward(rows, plan, scale)[0]


def _forward(rows: Rows, plan: BlockPlan, scale: float) -> tuple[jax.Array, _Saved]:
    """Forward rule: also keeps the log of each query's normalizer."""
    mixed, normalizer = jax.lax.map(
        partial(_row_forward, plan, scale),
        (rows, plan.queries),
    )
    mixed = checkpoint_name(mixed, "attention_out")
    normalizer = checkpoint_name(normalizer, "attention_normalizer")
    return mixed, _Saved(rows, plan, mixed, normalizer)


def _backward(scale: float, saved: _Saved, cotangent: jax.Array) -> tuple[Rows, None]:
    """Backward rule: the integers have no gradient."""
    # sum_k p_k (dp_k - sum p dp) needs that sum alone, which is <cotangent, mixed>.
    offset = jnp.sum(cotangent.astype(jnp.float32) * saved.mixed.astype(jnp.float32), axis=-1)
    dq, dk, dv = jax.lax.map(
        partial(_row_backward, saved.plan, scale),
        (saved.rows, saved.plan.keys, saved.normalizer, offset, cotangent),
    )
    return gradients(dq, dk, dv), None


_attend.defvjp(_forward, _backward)


def _row_forward(
    plan: BlockPlan, scale: float, one: tuple[Rows, Visits]
) -> tuple[jax.Array, jax.Array]:
    """Mixture [K, G, Tq, D] and normalizer [K, G, Tq] of one row and its visits by query block.

    Of `plan`, only block and window are read.
    """
    row, visits = one
    block, window = plan.block, plan.window
    kv, group, length, size = row.q.shape

    def of_block(i: jax.Array) -> tuple[jax.Array, jax.Array]:
        queries = _cut(row.q, i, block)

        def visit(step: jax.Array, running: _Triple) -> _Triple:
            j = visits.inner[step]
            pair = _Pair(i, j, visits.outer_blocks[i], visits.inner_blocks[j])
            scores = _scores(row, queries, pair, block, window, scale)
            top, total, mixed = running
            higher = jnp.maximum(top, scores.max(axis=-1))
            weights = jnp.exp(scores - higher[..., None])
            fade = jnp.exp(top - higher)
            added = _product(
                "kqs,ksd->kqd", _folded(weights).astype(row.v.dtype), _cut(row.v, j, block)
            )
            return (
                higher,
                fade * total + weights.sum(axis=-1),
                fade[..., None] * mixed + added.reshape(mixed.shape),
            )

        none = zeros((kv, group, block), like=row.q)
        start = (none + MASKED, none, zeros((*none.shape, size), like=row.q))
        top, total, mixed = jax.lax.fori_loop(visits.starts[i], visits.starts[i + 1], visit, start)
        return (mixed / total[..., None]).astype(row.q.dtype), top + jnp.log(total)

    mixed, normalizer = jax.lax.map(of_block, jnp.arange(length // block, dtype=jnp.int32))
    mixed = jnp.moveaxis(mixed, 0, 2).reshape(row.q.shape)
    return mixed, jnp.moveaxis(normalizer, 0, 2).reshape(kv, group, length)


def _row_backward(
    plan: BlockPlan,
    scale: float,
    one: tuple[Rows, Visits, jax.Array, jax.Array, jax.Array],
) -> _Triple:
    """dq [K, G, Tq, D], dk and dv [K, T, D] of one row, each of its input's type.

    Of `plan`, only block and window are read. `one` is the row, its visits by key block, normalizer
    and offset [K, G, Tq], and the cotangent [K, G, Tq, D].
    """
    row, visits, normalizer, offset, cotangent = one
    block, window = plan.block, plan.window
    kv, length, size = row.k.shape

    def of_block(dq: jax.Array, j: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        keys, values = _cut(row.k, j, block), _cut(row.v, j, block)

        def visit(step: jax.Array, sums: _Triple) -> _Triple:
            dq, dk, dv = sums
            i = visits.inner[step]
            queries, out = _cut(row.q, i, block), _folded(_cut(cotangent, i, block))
            pair = _Pair(i, j, visits.inner_blocks[i], visits.outer_blocks[j])
            scores = _scores(row, queries, pair, block, window, scale)
            mixing = jnp.exp(scores - _cut(normalizer, i, block, axis=-1)[..., None])
            slope = _product("kqd,ksd->kqs", out, values).reshape(mixing.shape)
            slope = mixing * (slope - _cut(offset, i, block, axis=-1)[..., None]) * scale
            flat = _folded(slope).astype(row.k.dtype)
            dv += _product("kqs,kqd->ksd", _folded(mixing).astype(out.dtype), out)
            dk += _product("kqs,kqd->ksd", flat, _folded(queries))
            added = _product("kqs,ksd->kqd", flat, keys).reshape(queries.shape)
            added += _cut(dq, i, block)
            return jax.lax.dynamic_update_slice_in_dim(dq, added, i * block, axis=2), dk, dv

        none = zeros((kv, block, size), like=row.k)
        bounds = visits.starts[j], visits.starts[j + 1]
        dq, dk, dv = jax.lax.fori_loop(*bounds, visit, (dq, none, none))
        return dq, (dk, dv)

    blocks = jnp.arange(length // block, dtype=jnp.int32)
    dq, parts = jax.lax.scan(of_block, zeros(row.q.shape, like=row.q), blocks)
    dk, dv = (jnp.moveaxis(part, 0, 1).reshape(row.k.shape) for part in parts)
    return dq.astype(row.q.dtype), dk.astype(row.k.dtype), dv.astype(row.v.dtype)


def _scores(
    row: Rows, queries: jax.Array, pair: _Pair, block: int, window: int | None, scale: float
) -> jax.Array:
    """Masked scores [K, G, n, n] float32 of `queries` [K, G, n, D] over the pair's key block."""
    i, j = pair.query, pair.key
    step = jnp.arange(block, dtype=jnp.int32)
    seen = visible_of(
        (pair.query_block * block + step, _cut(row.query_positions, i, block, axis=0)),
        (
            pair.key_block * block + step,
            _cut(row.ends, j, block, axis=0),
            _cut(row.positions, j, block, axis=0),
        ),
        window,
    )
    scores = _product("kqd,ksd->kqs", _folded(queries), _cut(row.k, j, block)) * scale
    return jnp.where(seen, scores.reshape(*queries.shape[:3], block), MASKED)


def _folded(array: jax.Array) -> jax.Array:
    """[K, G, n, X] -> [K, G * n, X]: one product a key head, which is faster on CPU."""
    return array.reshape(array.shape[0], -1, array.shape[-1])


def _product(axes: str, first: jax.Array, second: jax.Array) -> jax.Array:
    """`einsum` of two arrays, added up in float32."""
    return jnp.einsum(axes, first, second, preferred_element_type=jnp.float32)


def _cut(array: jax.Array, index: jax.Array, block: int, axis: int = -2) -> jax.Array:
    """Block `index` of the token axis."""
    return jax.lax.dynamic_slice_in_dim(array, index * block, block, axis=axis)
