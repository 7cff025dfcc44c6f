"""The row split over devices: order, balance, equality over simulated meshes, lowering for TPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from jax.sharding import AbstractMesh, AxisType

from patchgym.trainer.attention import (
    Implementation,
    attend_sharded,
    block_plan,
    context_order,
    context_plans,
    visited_blocks,
)

Ints = npt.NDArray[np.int32]
Rows = Callable[[np.random.Generator, int, int], tuple[Ints, Ints]]
Arrays = tuple[jax.Array, jax.Array, jax.Array]


def abstract_mesh(**sizes: int) -> AbstractMesh:
    """A mesh of devices that needn't be there."""
    return AbstractMesh(
        tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes)
    )


def test_golden_order() -> None:
    # 8 blocks of 2 tokens, dealt to 2 ranks: 0 1 | 1 0 | 0 1 | 1 0
    blocks = [0, 3, 4, 7, 1, 2, 5, 6]
    want = [2 * block + token for block in blocks for token in range(2)]
    order = context_order(16, 2, 2)
    assert order.tolist() == want
    assert order.dtype == np.int32
    assert context_order(12, 1, 3).tolist() == [0, 5, 6, 11, 1, 4, 7, 10, 2, 3, 8, 9]
    assert context_order(5, 2, 1).tolist() == [0, 1, 2, 3, 4]


def heaviest(ends: Ints, block: int, ranks: int) -> float:
    """Visits of the rank that has most, over the mean of the ranks."""
    blocks = context_order(len(ends), block, ranks)[::block] // block
    shares = [
        int(visited_blocks(block_plan(jnp.asarray(ends), block, query_blocks=jnp.asarray(own))))
        for own in blocks.reshape(ranks, -1)
    ]
    return max(shares) / float(np.mean(shares))


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_ranks_have_equal_work_in_a_causal_row(ranks: int) -> None:
    assert heaviest(np.full(1024, 1024, np.int32), 16, ranks) == 1


def test_ranks_have_about_equal_work_in_random_trees(random_rows: Rows) -> None:
    """Measured: 1.06 in the mean, 1.08 at most; equal stretches of the row have 1.65 and 2.1."""
    shares = []
    for seed in range(15):
        ends, _ = random_rows(np.random.default_rng(seed), 1, 4096)
        shares.append(heaviest(ends[0], 64, 4))
    assert np.mean(shares) < 1.07
    assert max(shares) < 1.1


def test_a_mesh_of_eight_devices_equals_one_device() -> None:
    """Value, dq, dk and dv, of causal, packed and tree rows; see mesh_runs.py for the meshes."""
    environment = dict(os.environ)
    environment["JAX_PLATFORMS"] = "cpu"
    environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    script = Path(__file__).parent / "mesh_runs.py"
    done = subprocess.run(
        [sys.executable, script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outcomes = json.loads(done.stdout)
    assert len(outcomes) == 15
    for outcome in outcomes:
        assert max(outcome["errors"]) < 1e-5, outcome
        assert outcome["split"] == 4 * [["fsdp", "tp", "cp"]]


def slope(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    ends: jax.Array,
    *,
    mesh: AbstractMesh,
    implementation: Implementation,
    window: int | None = None,
) -> Arrays:
    """Gradients over `mesh`, the plans made once outside of attention."""
    plans = context_plans(ends, 512, positions=ends, window=window, mesh=mesh)

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        mixed = attend_sharded(
            q,
            k,
            v,
            ends,
            positions=ends,
            window=window,
            scale=0.1,
            implementation=implementation,
            mesh=mesh,
            plans=plans,
        )
        return mixed.astype(jnp.float32).sum()

    dq, dk, dv = jax.grad(total, (0, 1, 2))(q, k, v)
    return dq, dk, dv


def specs(heads: int = 28, kv: int = 4, length: int = 32768) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Four rows of q, k, v and ends, with the heads of a 7B model."""
    shapes = [(4, count, length, 128) for count in (heads, kv, kv)]
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    return (*arrays, jax.ShapeDtypeStruct((4, length), jnp.int32))


@pytest.mark.parametrize("window", [None, 4096])
def test_the_kernels_lower_for_tpus_over_rows_and_context(window: int | None) -> None:
    mesh = abstract_mesh(fsdp=4, cp=4)
    function = jax.jit(partial(slope, mesh=mesh, implementation="pallas", window=window))
    text = function.trace(*specs()).lower(lowering_platforms=("tpu",)).as_text()
    for kernel in ("forward_kernel", "query_gradient_kernel", "key_gradient_kernel"):
        assert text.count(f'kernel_name = "{kernel}"') == 1
    # k and v come, dk and dv go; nothing else is exchanged.
    assert text.count("stablehlo.all_gather") == text.count("stablehlo.reduce_scatter") == 2
    assert text.count("stablehlo.all_reduce") == 0


def test_a_rematerialization_policy_keeps_the_outcome_of_each_rank() -> None:
    mesh = abstract_mesh(fsdp=4, cp=4)

    def walks(*names: str) -> int:
        def mixed(q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array) -> jax.Array:
            attend = partial(attend_sharded, scale=0.1, implementation="blocked", mesh=mesh)
            return jnp.sin(attend(q, k, v, ends))

        policy = jax.checkpoint_policies.save_only_these_names(*names)
        kept = jax.checkpoint(mixed, policy=policy)
        slopes = jax.grad(lambda *arrays: kept(*arrays).sum(), (0, 1, 2))
        return str(jax.make_jaxpr(slopes)(*specs())).count("while[")

    assert walks() == 3  # forward, forward again, backward
    assert walks("attention_out", "attention_normalizer") == 2


@pytest.mark.parametrize("axes", [{"tp": 4}, {"fsdp": 4, "cp": 1}])
def test_axes_may_be_absent_or_of_one_device(axes: dict[str, int]) -> None:
    function = jax.jit(partial(slope, mesh=abstract_mesh(**axes), implementation="blocked"))
    # Not a multiple of blocks: only a context of several ranks needs that.
    text = function.trace(*specs(length=1000)).lower().as_text()
    assert "all_gather" not in text
    assert "reduce_scatter" not in text


@pytest.mark.parametrize(
    ("axes", "shape", "message"),
    [
        ({"cp": 4}, {"length": 4608}, "4608 tokens .* 4 ranks in blocks of 512: pad it to 8192"),
        ({"fsdp": 3}, {}, "4 rows can't be split evenly over the 3 devices of 'fsdp'"),
        (
            {"tp": 2},
            {"heads": 9, "kv": 3},
            r"3 key heads .* 2 devices of 'tp': .* context parallelism \('cp'\) or to FSDP",
        ),
    ],
)
def test_what_the_mesh_cannot_split_is_refused(
    axes: dict[str, int], shape: dict[str, int], message: str
) -> None:
    function = jax.jit(partial(slope, mesh=abstract_mesh(**axes), implementation="blocked"))
    with pytest.raises(ValueError, match=message):
        function.trace(*specs(**shape))


def test_ends_in_another_order_and_plans_of_another_mesh_are_refused() -> None:
    mesh = abstract_mesh(cp=2)
    with pytest.raises(ValueError, match=r"ends\[0, 2\] is 3: it must lie after its own index"):
        context_plans(jnp.arange(1, 17)[None], 2, mesh=mesh)
    q = jnp.zeros((1, 1, 16, 8))
    ends = jnp.full((1, 16), 16)
    attend = partial(attend_sharded, scale=1.0, block=2, implementation="blocked", mesh=mesh)
    with pytest.raises(ValueError, match=r"arrays \(1, 36\) must be \[2, B, P\]"):
        attend(q, q, q, ends, plans=block_plan(ends, 2))
    with pytest.raises(ValueError, match="block=0 and context=2 must be at least 1"):
        context_order(16, 0, 2)
