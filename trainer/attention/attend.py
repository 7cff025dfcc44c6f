"""One door to attention: checks, padding to whole blocks, and the choice of implementation."""

from typing import Literal

import jax
import jax.numpy as jnp

from .blocked import attend_blocked
from .dense import attend_dense
from .mask import check_ends, pad_row, token_index, visible, visible_of
from .plan import BlockPlan, block_plan, positions_of_queries
from .rows import Rows

Implementation = Literal["dense", "blocked", "pallas", "pallas_interpreted"]
"""`dense` is the reference; `blocked` is for CPU and GPU, `pallas` for TPU. `pallas_interpreted`
runs the TPU kernels step by step anywhere, slowly: for tests."""


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    ends: jax.Array,
    *,
    positions: jax.Array | None = None,
    window: int | None = None,
    scale: float,
    block: int = 512,
    implementation: Implementation,
    plan: BlockPlan | None = None,
) -> jax.Array:
    """Values mixed by the softmax of `scale * q . k` over the keys that each query sees.

    q [B, H, T, D], k and v [B, K, T, D] with K dividing H (query head h reads key head h // (H/K)),
    float32 or bfloat16; ends and positions [B, T] int32 -> [B, H, T, D] of q's type.

    Query q sees key k when `k <= q < ends[k]` and, with a `window`, when `positions[q] -
    positions[k] < window`. Scores and sums are float32. `plan` is `block_plan` of the same ends,
    block, positions and window; without one, it is made here, once per call. T need not be a
    multiple of `block`. Gradients flow into q, k and v.

    A plan made with `query_blocks` takes q [B, H, Nq * block, D], those blocks of the row's
    queries, to [B, H, Nq * block, D]; one made with `key_blocks` takes k, v, ends and positions in
    that order. Gradients of k and v then are sums over the queries at hand.

    Inside `shard_map` any axis of B, H (with K) may be split; `attend_sharded` splits T, too.
    Raises ValueError for shapes, sizes, or a plan that don't fit, saying which.
    """
    _check_shapes(q, k, v, ends, positions, whole=plan is None)
    if window is not None and positions is None:
        raise ValueError("a window needs positions: pass the tokens' depths on their paths")
    if implementation not in ("dense", "blocked", "pallas", "pallas_interpreted"):
        raise ValueError(
            f"implementation={implementation!r}: choose dense, blocked, pallas or "
            "pallas_interpreted"
        )
    if plan is None and implementation != "dense":
        plan = block_plan(ends, block, positions=positions, window=window)
    elif plan is None:
        check_ends(ends)
    else:
        _check_plan(plan, q, ends, block, window)
    grouped = q.reshape(q.shape[0], k.shape[1], q.shape[1] // k.shape[1], *q.shape[2:])
    places = jnp.zeros_like(ends) if positions is None else positions
    if plan is None:
        mixed = attend_dense(grouped, k, v, visible(ends, places, window), scale)
        return mixed.reshape(q.shape)
    mixed = _mixed(implementation, _rows(grouped, k, v, ends, places, plan), plan, scale)
    return mixed[..., : q.shape[2], :].reshape(q.shape)


def _mixed(implementation: Implementation, rows: Rows, plan: BlockPlan, scale: float) -> jax.Array:
    """The mixture [B, K, G, Tq, D] of whole blocks."""
    if implementation == "dense":
        queries, keys = (
            token_index(visits.outer_blocks, plan.block) for visits in (plan.queries, plan.keys)
        )
        seen = visible_of(
            (queries, rows.query_positions), (keys, rows.ends, rows.positions), plan.window
        )
        return attend_dense(rows.q, rows.k, rows.v, seen, scale)
    if implementation == "blocked":
        return attend_blocked(rows, plan, scale)
    from .tpu import attend_tpu  # Pallas takes a second to import, and only TPUs need it

    return attend_tpu(rows, plan, scale, interpret=implementation == "pallas_interpreted")


def _rows(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    ends: jax.Array,
    positions: jax.Array,
    plan: BlockPlan,
) -> Rows:
    """Whole blocks of q [B, K, G, Tq, D], k and v [B, K, T, D], ends and positions [B, T]."""
    ends, positions = pad_row(ends, positions, plan.block)
    length = plan.queries.outer_blocks.shape[-1] * plan.block
    if plan.window is None:
        own = jnp.zeros_like(positions[:, :length])
    else:
        own = positions_of_queries(positions, plan)
    k, v = (_pad_tokens(array, ends.shape[1]) for array in (k, v))
    return Rows(_pad_tokens(q, length), k, v, ends, positions, own)


def _check_shapes(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    ends: jax.Array,
    positions: jax.Array | None,
    *,
    whole: bool,
) -> None:
    """Raise ValueError for shapes that `attend` can't take; `whole` rows have as many queries."""
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
        raise ValueError(f"q must be [B, H, T, D], k and v both [B, K, T, D], not {shapes}")
    batch, heads, queries, size = q.shape
    length = k.shape[2]
    if (k.shape[0], k.shape[3]) != (batch, size) or (whole and queries != length):
        raise ValueError(
            f"q, k and v must agree in B, T and D, not {shapes}; for a part of the queries, pass "
            "the plan of these"
        )
    if heads % k.shape[1]:
        raise ValueError(f"the {k.shape[1]} key heads must divide the {heads} query heads")
    for name, array in (("ends", ends), ("positions", positions)):
        if array is not None and array.shape != (batch, length):
            raise ValueError(f"{name} must be [B, T] = {(batch, length)}, not {array.shape}")


def _check_plan(
    plan: BlockPlan, q: jax.Array, ends: jax.Array, block: int, window: int | None
) -> None:
    """Raise ValueError for a plan of another block, window or row, and for ends that none has."""
    if (plan.block, plan.window) != (block, window):
        raise ValueError(
            f"the plan was made for block={plan.block}, window={plan.window}, but attend was "
            f"called with block={block}, window={window}"
        )
    batch, length = ends.shape
    for name, visits, tokens in (
        ("keys", plan.keys, length),
        ("queries", plan.queries, q.shape[2]),
    ):
        want = (batch, -(-tokens // block) + 1)
        if visits.starts.shape != want:
            raise ValueError(
                f"the plan's {name} are of rows and blocks {visits.starts.shape}, these rows need "
                f"{want}: make it from the same ends"
            )
    check_ends(ends, token_index(plan.keys.outer_blocks, block)[:, :length])


def _pad_tokens(array: jax.Array, length: int) -> jax.Array:
    """`array` [..., T, D] with zeros up to `length` tokens."""
    extra = length - array.shape[-2]
    return jnp.pad(array, [(0, 0)] * (array.ndim - 2) + [(0, extra), (0, 0)]) if extra else array
