"""How a kernel walks a plan: the grid, which block of each array a step sees, and its place.

Arrays are cut along T, the tokens of the queries or of the keys. An operand that `stays` shows the
step's outer block, one that `passes` its inner block; results stay. Shapes: [B, 1, T] (per row),
[B, K, T, D], [B, K, G, T] and [B, K, G, T, D] (per key head).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from .visits import Visits

Ref = Any
"""A block in the kernel's memory: indexed and assigned like an array."""

LANES = 128
"""Numbers in a row of a TPU's vector register."""

_VMEM_BYTES = 64 * 2**20
"""The most that a kernel may take: half of what v5e, v5p and v6e have, all that tpu7x has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a kernel is compiled for."""

    block: int
    """Tokens a block (n)."""
    window: int | None
    """Positions that a query looks back, itself included."""
    scale: float
    """Factor of the scores."""
    interpret: bool | pltpu.InterpretParams
    """Run in XLA instead of on a TPU."""


class Operand(NamedTuple):
    """An array, and which of its axes are the tokens: -1 or -2."""

    array: jax.Array | jax.ShapeDtypeStruct
    tokens: int


def like(array: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """A result that varies over the same axes of `shard_map` as `array`."""
    kind = jax.typeof(array).manual_axis_type
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=kind)


class Step(NamedTuple):
    """Where a step of the grid stands; scalars."""

    outer: jax.Array
    """Which block of the row stays; not its place in the arrays."""
    inner: jax.Array
    """Which block of the row passes."""
    live: jax.Array
    """False past the row's last pair: other rows have more."""
    first: jax.Array
    """This is the first pair of the outer block."""
    last: jax.Array


Kernel = Callable[[Options, Step, Sequence[Ref], Sequence[Ref], Sequence[Ref], Sequence[Ref]], None]
"""Does one step with the blocks that stay, those that pass, the results, and the scratch."""


def call(
    kernel: Kernel,
    options: Options,
    visits: Visits,
    *,
    stays: Sequence[Operand],
    passes: Sequence[Operand],
    results: Sequence[Operand],
    scratch: Sequence[tuple[tuple[int, ...], Any]],
    key_heads: int,
    over: Sequence[jax.Array] = (),
) -> list[jax.Array]:
    """Run `kernel` once for each pair of `visits`; `results` say shape and type of what it makes.

    Its blocks come without the axes B and K, except for [B, 1, T], which comes as [1, n]. With
    `over`, an array for each result, that is what the blocks hold that no pair visits; without,
    these hold anything.
    """
    lists, sizes = _flat(visits)
    outer, inner = (partial(_spec, options.block, sizes[0], which) for which in (0, 1))
    given = [*stays, *passes]
    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=len(lists),
        grid=(len(visits.outer), key_heads, jnp.max(visits.starts[:, -1])),
        in_specs=[
            *map(outer, stays),
            *map(inner, passes),
            *(pl.BlockSpec(memory_space=pl.ANY) for _ in over),
        ],
        out_specs=[*map(outer, results)],
        scratch_shapes=[pltpu.VMEM(shape, dtype) for shape, dtype in scratch],
    )

    def body(*refs: Ref) -> None:
        plan, blocks = refs[: len(lists)], refs[len(lists) :]
        made = len(given) + len(over)
        kernel(
            options,
            _step(plan, sizes),
            blocks[: len(stays)],
            blocks[len(stays) : len(given)],
            blocks[made : made + len(results)],
            blocks[made + len(results) :],
        )

    made: list[jax.Array] = pl.pallas_call(
        body,
        grid_spec=grid,
        out_shape=[one.array for one in results],
        input_output_aliases={len(lists) + len(given) + place: place for place in range(len(over))},
        interpret=options.interpret,
        name=kernel.__name__,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=_VMEM_BYTES,
        ),
    )(*lists, *(operand.array for operand in given), *over)
    return made


def _flat(visits: Visits) -> tuple[list[jax.Array], list[int]]:
    """The lists of `visits` for scalar memory, one row after the other, and the sizes of a row."""
    lists = (
        visits.outer,
        visits.inner,
        visits.starts,
        visits.outer_blocks,
        visits.inner_blocks,
    )
    return [one.ravel() for one in lists], [one.shape[1] for one in lists]


def _step(plan: Sequence[Ref], sizes: Sequence[int]) -> Step:
    """The place of the running step, from `_flat`'s lists and sizes."""
    row, index = pl.program_id(0), pl.program_id(2)

    def entry(which: int, column: Any) -> jax.Array:
        found: jax.Array = plan[which][row * sizes[which] + column]
        return found

    outer, inner = entry(0, index), entry(1, index)
    return Step(
        outer=entry(3, outer),
        inner=entry(4, inner),
        live=index < entry(2, sizes[2] - 1),
        first=index == entry(2, outer),
        last=index + 1 == entry(2, outer + 1),
    )


def _spec(block: int, capacity: int, which: int, operand: Operand) -> pl.BlockSpec:
    """The blocks of `operand` that the outer (0) or inner (1) entry of the plan names."""
    shape = list(operand.array.shape)
    shape[operand.tokens] = block
    per_row = len(shape) == 3
    axis = len(shape) + operand.tokens

    def place(row: Any, head: Any, index: Any, *plan: Ref) -> tuple[Any, ...]:
        at: list[Any] = [0] * len(shape)
        at[0], at[1] = row, 0 if per_row else head
        at[axis] = plan[which][row * capacity + index]
        return tuple(at)

    return pl.BlockSpec((None, *shape[1:]) if per_row else (None, None, *shape[2:]), place)
