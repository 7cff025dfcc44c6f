"""Context parallelism: the queries of a row split over devices, its keys gathered.

Axes of the mesh: `rows` splits B, `heads` the query heads with their key heads, `context` T. Each
may be absent, or of size 1.

Causal queries see more the later they stand, so that equal stretches are unequal work. Blocks are
dealt out to the C ranks to and fro instead, and the row travels through the model in that order:

    block of the row       0 1 2 3 4 5 6 7      C = 2, N = 8 blocks
    rank                   0 1 1 0 0 1 1 0
    the permuted row       0 3 4 7 | 1 2 5 6    rank 0 | rank 1

`context_order` says once, on the host, which token stands at each place. Nothing but attention
needs to know: k and v are gathered over `context` as they lie, and the plan of each rank says which
block of the row lies where.

Gathering k and v, and pairing early with late parts of the row, are from Llama 3 (Grattafiori et
al. 2024, arXiv:2407.21783, section 3.3.2). Deviations: single blocks are dealt out to and fro, not
2 C stretches, so that the branches of a tree are shared evenly, too; and each rank skips the blocks
that its queries don't see.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import AbstractMesh, Mesh
from jax.sharding import PartitionSpec as P

from patchgym.trainer.parallel.manual import gathered_parts

from .attend import Implementation, attend
from .mask import check_ends
from .plan import BlockPlan, block_plan

Ints = npt.NDArray[np.int32]
AnyMesh = Mesh | AbstractMesh


def context_order(length: int, block: int, context: int) -> Ints:
    """Which token of the row stands at each place of the permuted row: [T] int32.

    `tokens[order]` is the permuted row, of which rank r of `context` owns the r-th of equal
    stretches; token t stands at place `np.argsort(order)[t]`. With one rank, the row's own order.
    Raises ValueError for a length that the ranks can't share evenly.
    """
    if context == 1:
        return np.arange(length, dtype=np.int32)
    blocks = context_blocks(length, block, context)
    return (blocks[:, None] * block + np.arange(block, dtype=np.int32)).reshape(-1)


def context_blocks(length: int, block: int, context: int) -> Ints:
    """Which block of the row stands at each place: [N] int32, the ranks' parts one by one.

    Raises ValueError for a length that is no multiple of `2 * context * block`.
    """
    if block < 1 or context < 1:
        raise ValueError(f"block={block} and context={context} must be at least 1")
    unit = 2 * context * block
    if length % unit or length < 1:
        raise ValueError(
            f"a row of {length} tokens can't be shared evenly by {context} ranks in blocks of "
            f"{block}: pad it to {max(1, -(-length // unit)) * unit}, a multiple of 2 x {context} "
            f"x {block}"
        )
    rounds = np.arange(length // block, dtype=np.int32).reshape(-1, 2, context)
    there, back = rounds[:, 0], rounds[:, 1, ::-1]
    return np.stack([there, back], axis=1).transpose(2, 0, 1).reshape(-1)


def context_plans(
    ends: jax.Array,
    block: int,
    *,
    positions: jax.Array | None = None,
    window: int | None = None,
    mesh: AnyMesh,
    rows: str = "fsdp",
    context: str = "cp",
) -> BlockPlan:
    """The plan of each rank's queries, for `attend_sharded`: made once per step, for all layers.

    `ends` and `positions` [B, T] int32 in the order of `context_order` (the values of `ends` stay
    indices in the row). Arrays of the plan are [C, B, ...], split over `context` and `rows`; each
    device makes its own. Raises ValueError as `block_plan` and `context_order`, and for rows that
    `rows` doesn't divide.
    """
    batch, length = ends.shape
    ranks = _size(mesh, context)
    _check_rows(mesh, rows, batch)
    check_ends(ends, context_order(length, block, ranks))
    whole = P(_name(mesh, rows), None)

    def local(ends: jax.Array, positions: jax.Array | None) -> BlockPlan:
        queries, keys = _blocks(length, block, ranks, context)
        plan = block_plan(
            ends,
            block,
            positions=positions,
            window=window,
            query_blocks=queries,
            key_blocks=keys,
        )
        leading: BlockPlan = jax.tree.map(lambda array: array[None], plan)
        return leading

    make = jax.shard_map(
        local, mesh=mesh, in_specs=(whole, whole), out_specs=_plan_spec(mesh, rows, context)
    )
    plans: BlockPlan = make(ends, positions)
    return plans


def attend_sharded(
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
    mesh: AnyMesh,
    rows: str = "fsdp",
    context: str = "cp",
    heads: str = "tp",
    plans: BlockPlan | None = None,
) -> jax.Array:
    """`attend` over a mesh: q [B, H, T, D], k and v [B, K, T, D] -> [B, H, T, D].

    All of T lie in the order of `context_order(T, block, C)`: q, k, v, the result, ends and
    positions [B, T] (the values of `ends` stay indices in the row). Arrays are split over `rows`,
    `heads` and `context`; ends and positions over `rows` alone, every rank reads them whole. The
    axes are of type Auto.
    `plans` are `context_plans` of the same; without them, they are made here, once per call.
    Gradients flow into q, k and v, and come back split as these are; the ranks' parts of dk and dv
    are added up in the type of k and v.

    Raises ValueError as `attend` and `context_plans`, for key heads that `heads` doesn't divide,
    and for plans of another mesh.
    """
    ranks = _size(mesh, context)
    _check_heads(mesh, heads, context, rows, k.shape[1])
    if plans is None:
        plans = context_plans(
            ends,
            block,
            positions=positions,
            window=window,
            mesh=mesh,
            rows=rows,
            context=context,
        )
    _check_rows(mesh, rows, ends.shape[0])
    _check_plans(plans, ranks)
    whole = P(_name(mesh, rows), None)
    split = P(_name(mesh, rows), _name(mesh, heads), _name(mesh, context))

    def local(
        arrays: tuple[jax.Array, jax.Array, jax.Array],
        ends: jax.Array,
        positions: jax.Array | None,
        plans: BlockPlan,
    ) -> jax.Array:
        q, k, v = arrays
        if ranks > 1:
            k, v = (gathered_parts(one, context, 2) for one in (k, v))
        return attend(
            q,
            k,
            v,
            ends,
            positions=positions,
            window=window,
            scale=scale,
            block=block,
            implementation=implementation,
            plan=jax.tree.map(lambda array: array[0], plans),
        )

    mix = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(split, whole, whole, _plan_spec(mesh, rows, context)),
        out_specs=split,
        # The interpreter of Pallas doesn't follow what varies over which axis.
        check_vma=implementation != "pallas_interpreted",
    )
    mixed: jax.Array = mix((q, k, v), ends, positions, plans)
    return mixed


def _blocks(
    length: int, block: int, ranks: int, context: str
) -> tuple[jax.Array | None, jax.Array | None]:
    """Inside `shard_map`, the blocks of this rank's queries, and of all keys; None: as they lie."""
    if ranks == 1:
        return None, None
    keys = jnp.asarray(context_blocks(length, block, ranks))
    return keys.reshape(ranks, -1)[jax.lax.axis_index(context)], keys


def _size(mesh: AnyMesh, axis: str) -> int:
    """Devices along `axis`; 1 where the mesh hasn't got it."""
    return int(mesh.shape.get(axis, 1))


def _name(mesh: AnyMesh, axis: str) -> str | None:
    """`axis` for a PartitionSpec; None where the mesh hasn't got it."""
    return axis if axis in mesh.shape else None


def _plan_spec(mesh: AnyMesh, rows: str, context: str) -> P:
    """Of every array [C, B, ...] of `context_plans`."""
    return P(_name(mesh, context), _name(mesh, rows))


def _check_rows(mesh: AnyMesh, rows: str, batch: int) -> None:
    """Raise ValueError for rows that can't be split evenly."""
    size = _size(mesh, rows)
    if batch % size:
        raise ValueError(
            f"{batch} rows can't be split evenly over the {size} devices of {rows!r}: hand over a "
            f"multiple of {size}, or make that axis smaller"
        )


def _check_heads(mesh: AnyMesh, heads: str, context: str, rows: str, count: int) -> None:
    """Raise ValueError for `count` key heads that can't be split evenly."""
    size = _size(mesh, heads)
    if count % size:
        raise ValueError(
            f"{count} key heads can't be split evenly over the {size} devices of {heads!r}: give "
            f"these devices to context parallelism ({context!r}) or to FSDP ({rows!r}) instead"
        )


def _check_plans(plans: BlockPlan, ranks: int) -> None:
    """Raise ValueError for plans that were made for another mesh."""
    made = plans.queries.outer.shape[0]
    if plans.queries.outer.ndim != 3 or made != ranks:
        raise ValueError(
            f"the plans' arrays {plans.queries.outer.shape} must be [{ranks}, B, P], one for each "
            "rank of the context: make them with context_plans for this mesh"
        )
