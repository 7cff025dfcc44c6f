"""Runs attention over meshes of simulated devices, and prints how far it is from one device.

Usage: XLA_FLAGS=--xla_force_host_platform_device_count=8 python mesh_runs.py. Prints JSON, a list
of `Outcome`s. It is a process of its own since the number of devices is fixed when JAX starts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from patchgym.trainer.attention import (
    Implementation,
    attend,
    attend_sharded,
    context_order,
    context_plans,
)

Ints = npt.NDArray[np.int32]
Arrays = tuple[jax.Array, jax.Array, jax.Array]
ROWS, HEADS, KEY_HEADS, LENGTH, SIZE, BLOCK = 4, 4, 2, 128, 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mesh and what runs on it."""

    mesh: tuple[int, int, int]
    """Devices for rows, context and heads."""
    implementation: Implementation
    """One of `attend`'s."""
    window: int | None
    """Positions that a query looks back."""
    heads: tuple[int, int] = (HEADS, KEY_HEADS)
    """Query and key heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How far `case` is from the dense reference on one device."""

    case: Case
    """What ran."""
    row: str
    """The kind of row."""
    errors: list[float]
    """Largest difference of the value, dq, dk and dv, over the reference's largest number."""
    split: list[list[str | None]]
    """The axes of the mesh that value, dq, dk and dv are split over."""


CASES = [
    Case(mesh=(2, 2, 2), implementation="blocked", window=None),
    Case(mesh=(1, 4, 1), implementation="blocked", window=None, heads=(3, 1)),
    Case(mesh=(4, 2, 1), implementation="blocked", window=9),
    Case(mesh=(1, 8, 1), implementation="blocked", window=None),
    Case(mesh=(2, 2, 1), implementation="pallas_interpreted", window=9, heads=(2, 1)),
]


def causal() -> tuple[Ints, Ints]:
    """`ends` and `positions` [B, T] of one sequence a row."""
    ends = np.full((ROWS, LENGTH), LENGTH, np.int32)
    return ends, np.broadcast_to(np.arange(LENGTH, dtype=np.int32), ends.shape)


def packed(rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Sequences side by side."""
    ends, positions = np.zeros((2, ROWS, LENGTH), np.int32)
    for row in range(ROWS):
        start = 0
        while start < LENGTH:
            stop = min(LENGTH, start + int(rng.integers(1, 50)))
            ends[row, start:stop] = stop
            positions[row, start:stop] = np.arange(stop - start)
            start = stop
    return ends, positions


def trees(rng: np.random.Generator) -> tuple[Ints, Ints]:
    """A prompt of a third of the row, and branches of it, each forked once."""
    ends, positions = np.zeros((2, ROWS, LENGTH), np.int32)
    prompt = LENGTH // 3
    ends[:, :prompt], positions[:, :prompt] = LENGTH, np.arange(prompt)
    for row in range(ROWS):
        start = prompt
        while start < LENGTH:
            stop = min(LENGTH, start + int(rng.integers(3, 40)))
            fork, second = start + (stop - start) // 3, start + 2 * (stop - start) // 3
            ends[row, start:stop], ends[row, fork:second] = stop, second
            positions[row, start:second] = prompt + np.arange(second - start)
            positions[row, second:stop] = prompt + fork - start + np.arange(stop - second)
            start = stop
    return ends, positions


def reference(
    arrays: Arrays, weight: jax.Array, ends: jax.Array, positions: jax.Array, *, window: int | None
) -> tuple[jax.Array, ...]:
    """Value, dq, dk and dv on one device."""

    def total(arrays: Arrays) -> tuple[jax.Array, jax.Array]:
        mixed = attend(
            *arrays, ends, positions=positions, window=window, scale=0.3, implementation="dense"
        )
        return (mixed * weight).sum(), mixed

    gradients, mixed = jax.grad(total, has_aux=True)(arrays)
    return mixed, *gradients


def sharded(
    arrays: Arrays,
    weight: jax.Array,
    ends: jax.Array,
    positions: jax.Array,
    *,
    case: Case,
    mesh: Mesh,
) -> tuple[jax.Array, ...]:
    """Value, dq, dk and dv over the mesh; all in the order of the context."""
    plans = context_plans(ends, BLOCK, positions=positions, window=case.window, mesh=mesh)

    def total(arrays: Arrays) -> tuple[jax.Array, jax.Array]:
        mixed = attend_sharded(
            *arrays,
            ends,
            positions=positions,
            window=case.window,
            scale=0.3,
            block=BLOCK,
            implementation=case.implementation,
            mesh=mesh,
            plans=plans,
        )
        return (mixed * weight).sum(), mixed

    gradients, mixed = jax.grad(total, has_aux=True)(arrays)
    return mixed, *gradients


def run(case: Case) -> list[Outcome]:
    """Each kind of row over the mesh of `case`."""
    rng = np.random.default_rng(case.mesh[1])
    devices = np.array(jax.devices()[: int(np.prod(case.mesh))])
    mesh = Mesh(devices.reshape(case.mesh), ("fsdp", "cp", "tp"))
    place = NamedSharding(mesh, PartitionSpec("fsdp", "tp", "cp"))
    order = context_order(LENGTH, BLOCK, case.mesh[1])
    q, k, v, weight = (
        jnp.asarray(rng.normal(size=(ROWS, count, LENGTH, SIZE)), jnp.float32)
        for count in (case.heads[0], case.heads[1], case.heads[1], case.heads[0])
    )
    q_moved, k_moved, v_moved, weight_moved = (
        jax.device_put(array[:, :, order], place) for array in (q, k, v, weight)
    )
    one = jax.jit(partial(reference, window=case.window))
    many = jax.jit(partial(sharded, case=case, mesh=mesh))
    outcomes = []
    for name, (ends, positions) in {
        "causal": causal(),
        "packed": packed(rng),
        "trees": trees(rng),
    }.items():
        want = one((q, k, v), weight, ends, positions)
        moved = (q_moved, k_moved, v_moved)
        got = many(moved, weight_moved, ends[:, order], positions[:, order])
        errors = [
            float(np.abs(left - right[:, :, order]).max() / np.abs(right).max())
            for left, right in zip(jax.device_get(got), jax.device_get(want), strict=True)
        ]
        split = [list(array.sharding.spec) for array in got]
        outcomes.append(Outcome(case=case, row=name, errors=errors, split=split))
    return outcomes


if __name__ == "__main__":
    json.dump([asdict(outcome) for case in CASES for outcome in run(case)], sys.stdout)
