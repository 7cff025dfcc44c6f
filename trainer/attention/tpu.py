"""Attention in Pallas kernels for TPU: one step of the grid for each pair of blocks to visit.

Axes: B rows, K key heads, G query heads a key head, T keys and Tq queries (whole blocks; all of the
row's queries or a part), D head size, n tokens a block.

The grid is (B, K, visits). Its last size is the plan's count, a number known only at run time, so a
pair with nothing to see costs nothing: no step, no copy. The plan lies in scalar memory, and says
which blocks each step reads:

    step         0    1    2    3    4          forward, dq: the query block and its sums stay put
    outer block  0    1    1    2    2          while the key blocks that it visits pass by;
    inner block  0    0    1    0    2          dk, dv: the key block stays, the queries pass by
                first ┘    └ last: write

A step does all G query heads of a key head, which read the same keys. The softmax runs as in
FlashAttention (Dao et al. 2022, arXiv:2205.14135), its normalizer is kept, and the backward pass
makes the probabilities again, in two kernels (as in FlashAttention-2, Dao 2023, arXiv:2307.08691;
deviation: the mask, and the list of visits in place of a dense grid). Where the queries are a part
of the row, no step visits the keys that none of them sees: dk and dv are written over zeros.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.tpu import InterpretParams

from patchgym.trainer.parallel.manual import zeros

from .plan import BlockPlan
from .rows import Rows, gradients
from .tpu_grid import LANES, Operand, Options, call, like
from .tpu_kernels import forward_kernel, key_gradient_kernel, query_gradient_kernel


class _Saved(NamedTuple):
    """What the backward pass reads."""

    rows: Rows
    plan: BlockPlan
    mixed: jax.Array
    normalizer: jax.Array
    """[B, K, G, Tq] float32."""


def attend_tpu(
    rows: Rows,
    plan: BlockPlan,
    scale: float,
    *,
    interpret: bool | InterpretParams = False,
) -> jax.Array:
    """The mixture [B, K, G, Tq, D], of the type of `rows.q`.

    T and Tq are multiples of `plan.block`. On a TPU the block is a multiple of 128; D is best 64,
    128 or 256. `interpret` runs the kernels in XLA instead, on any device; with `InterpretParams`
    it simulates a TPU's memories and copies, too. The outcome and its normalizer are named
    `attention_out` and `attention_normalizer` for rematerialization policies.

    Raises ValueError for a block that the TPU's lanes can't hold.
    """
    if not interpret and plan.block % LANES:
        raise ValueError(f"block={plan.block} must be a multiple of {LANES}, the TPU's lanes")
    options = Options(block=plan.block, window=plan.window, scale=float(scale), interpret=interpret)
    # Any: checkers don't agree on the type of a custom_vjp function.
    mixed: Any = _attend(rows, plan, options)
    return mixed  # type: ignore[no-any-return]


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _attend(rows: Rows, plan: BlockPlan, options: Options) -> jax.Array:
    """`attend_tpu`, with its own derivative."""
    return _forward(rows, plan, options)[0]


def _forward(rows: Rows, plan: BlockPlan, options: Options) -> tuple[jax.Array, _Saved]:
    """Forward rule: also keeps the log of each query's normalizer."""
    queries, keys = _operands(rows)
    q = rows.q
    mixed, normalizer = call(
        forward_kernel,
        options,
        plan.queries,
        stays=queries,
        passes=keys,
        results=[_result(q), Operand(like(q, q.shape[:4], jnp.float32), -1)],
        scratch=_scratch(q, options.block),
        key_heads=q.shape[1],
    )
    mixed = checkpoint_name(mixed, "attention_out")
    normalizer = checkpoint_name(normalizer, "attention_normalizer")
    return mixed, _Saved(rows, plan, mixed, normalizer)


def _backward(options: Options, saved: _Saved, cotangent: jax.Array) -> tuple[Rows, None]:
    """Backward rule: the integers have no gradient."""
    rows, plan, mixed, normalizer = saved
    queries, keys = _operands(rows)
    # sum_k p_k (dp_k - sum p dp) needs that sum alone, which is <cotangent, mixed>.
    offset = jnp.sum(cotangent.astype(jnp.float32) * mixed.astype(jnp.float32), axis=-1)
    queries += [Operand(cotangent, -2), Operand(normalizer, -1), Operand(offset, -1)]
    (dq,) = call(
        query_gradient_kernel,
        options,
        plan.queries,
        stays=queries,
        passes=keys,
        results=[_result(rows.q)],
        scratch=_scratch(rows.q, options.block),
        key_heads=rows.k.shape[1],
    )
    block, size = options.block, rows.k.shape[-1]
    part, keyed = rows.q.shape[3] < rows.k.shape[2], (rows.k, rows.v)
    dk, dv = call(
        key_gradient_kernel,
        options,
        plan.keys,
        stays=keys,
        passes=queries,
        results=[*map(_result, keyed)],
        scratch=2 * [((block, size), jnp.float32)] + 2 * [((block, LANES), jnp.int32)],
        key_heads=rows.k.shape[1],
        over=[zeros(one.shape, one.dtype, like=one) for one in keyed] if part else [],
    )
    return gradients(dq, dk, dv), None


def _operands(rows: Rows) -> tuple[list[Operand], list[Operand]]:
    """What a query block and what a key block brings."""
    ends, positions, query_positions = (
        Operand(vector[:, None], -1) for vector in (rows.ends, rows.positions, rows.query_positions)
    )
    queries = [query_positions, Operand(rows.q, -2)]
    return queries, [ends, positions, Operand(rows.k, -2), Operand(rows.v, -2)]


def _result(array: jax.Array) -> Operand:
    """A result of the shape and type of `array`."""
    return Operand(like(array, array.shape, array.dtype), -2)


def _scratch(q: jax.Array, block: int) -> list[tuple[tuple[int, ...], Any]]:
    """Two columns a query head, its sums, and the queries' positions as a column."""
    group, size = q.shape[2], q.shape[4]
    column = ((group, block, LANES), jnp.float32)
    return [column, column, ((group, block, size), jnp.float32), ((block, LANES), jnp.int32)]


_attend.defvjp(_forward, _backward)
