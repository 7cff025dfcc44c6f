"""Attention by blocks against the dense reference, and the reference against single sequences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from jax.experimental.pallas.tpu import InterpretParams
from jax.sharding import AbstractMesh, AxisType
from jax.sharding import PartitionSpec as P

from patchgym.trainer.attention import Implementation, attend, block_plan
from patchgym.trainer.attention.rows import Rows as Given
from patchgym.trainer.attention.tpu import attend_tpu

Ints = npt.NDArray[np.int32]
Rows = Callable[[np.random.Generator, int, int], tuple[Ints, Ints]]
Arrays = tuple[jax.Array, jax.Array, jax.Array]
BY_BLOCKS: tuple[Implementation, ...] = ("blocked", "pallas_interpreted")


def inputs(
    rng: np.random.Generator, *, rows: int, heads: int, kv: int, length: int, size: int
) -> Arrays:
    """q, k and v, standard normal, float32."""
    shapes = [(rows, count, length, size) for count in (heads, kv, kv)]
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    return q, k, v


@partial(jax.jit, static_argnames=("implementation", "block", "window", "planned"))
def outcome(
    arrays: Arrays,
    weight: jax.Array,
    ends: jax.Array,
    positions: jax.Array,
    *,
    implementation: Implementation,
    block: int = 8,
    window: int | None = None,
    planned: bool = False,
) -> tuple[jax.Array, Arrays]:
    """The mixture, and the gradients of its sum, weighted with `weight`."""
    plan = block_plan(ends, block, positions=positions, window=window) if planned else None

    def total(arrays: Arrays) -> tuple[jax.Array, jax.Array]:
        mixed = attend(
            *arrays,
            ends,
            positions=positions,
            window=window,
            scale=0.3,
            block=block,
            implementation=implementation,
            plan=plan,
        )
        return jnp.sum(mixed * weight), mixed

    gradient, mixed = jax.grad(total, has_aux=True)(arrays)
    return mixed, gradient


def assert_close(got: tuple[jax.Array, Arrays], want: tuple[jax.Array, Arrays]) -> None:
    """Equal to 1e-5 of each array's largest number."""
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert left.dtype == right.dtype
        limit = 1e-5 * float(jnp.abs(right).max())
        np.testing.assert_allclose(left, right, rtol=0, atol=limit)


SHAPES = [
    {"rows": 2, "heads": 4, "kv": 2, "length": 45, "size": 16},
    {"rows": 1, "heads": 6, "kv": 1, "length": 32, "size": 8},
    {"rows": 2, "heads": 3, "kv": 3, "length": 5, "size": 8},
]


@pytest.mark.parametrize(
    ("shape", "window", "planned"),
    [
        (SHAPES[0], None, True),
        (SHAPES[0], 3, False),
        (SHAPES[1], None, False),
        (SHAPES[2], 3, True),
    ],
)
@pytest.mark.parametrize("implementation", BY_BLOCKS)
def test_values_and_gradients_equal_the_dense_reference_over_random_trees(
    random_rows: Rows,
    implementation: Implementation,
    shape: dict[str, int],
    window: int | None,
    planned: bool,
) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        ends, positions = map(jnp.asarray, random_rows(rng, shape["rows"], shape["length"]))
        arrays = inputs(rng, **shape)
        weight = jnp.asarray(rng.normal(size=arrays[0].shape), jnp.float32)
        run = partial(outcome, arrays, weight, ends, positions, window=window)
        assert_close(
            run(implementation=implementation, planned=planned), run(implementation="dense")
        )


@pytest.mark.parametrize("implementation", ["dense", *BY_BLOCKS])
def test_a_token_of_a_tree_gets_what_it_gets_alone(implementation: Implementation) -> None:
    """An independent reference: numpy, one sequence and one head at a time."""
    rng = np.random.default_rng(1)
    # prompt 0 1 2, branches 3 4 and 5 6 7 of it, then another sequence 8 9
    ends = jnp.asarray([[8, 8, 8, 5, 5, 8, 8, 8, 10, 10]], jnp.int32)
    positions = jnp.asarray([[0, 1, 2, 3, 4, 3, 4, 5, 0, 1]], jnp.int32)
    arrays = inputs(rng, rows=1, heads=4, kv=2, length=10, size=4)
    got, _ = outcome(
        arrays, arrays[0], ends, positions, implementation=implementation, block=4, window=4
    )
    q, k, v = (np.asarray(array[0], np.float64) for array in arrays)
    for path in ([0, 1, 2, 3, 4], [0, 1, 2, 5, 6, 7], [8, 9]):
        for depth, token in enumerate(path):
            seen = path[max(0, depth - 3) : depth + 1]
            for head in range(4):
                scores = np.exp(0.3 * k[head // 2, seen] @ q[head, token])
                want = scores / scores.sum() @ v[head // 2, seen]
                np.testing.assert_allclose(got[0, head, token], want, atol=1e-5)


@pytest.mark.parametrize("implementation", BY_BLOCKS)
def test_large_scores_neither_overflow_nor_leak(implementation: Implementation) -> None:
    """A key that may not be seen has by far the largest score, in the first block visited."""
    rng = np.random.default_rng(2)
    q, k, v = inputs(rng, rows=1, heads=1, kv=1, length=12, size=4)
    q, k = 0 * q + 40, (0 * k).at[0, 0, 1].set(40)
    ends = jnp.asarray([[12, 2, *[12] * 10]], jnp.int32)
    run = partial(outcome, (q, k, v), v, ends, 0 * ends, block=4)
    assert_close(run(implementation=implementation), run(implementation="dense"))
    np.testing.assert_array_equal(run(implementation=implementation)[1][2][0, 0, 1], v[0, 0, 1])


@pytest.mark.parametrize("implementation", ["dense", *BY_BLOCKS])
def test_bfloat16_goes_in_and_comes_out_and_sums_are_float32(
    random_rows: Rows, implementation: Implementation
) -> None:
    rng = np.random.default_rng(3)
    ends, positions = map(jnp.asarray, random_rows(rng, 1, 40))
    exact = inputs(rng, rows=1, heads=4, kv=2, length=40, size=16)
    q, k, v = (array.astype(jnp.bfloat16) for array in exact)
    rounded = (q.astype(jnp.float32), k.astype(jnp.float32), v.astype(jnp.float32))
    weight = jnp.ones_like(exact[0])
    got = outcome((q, k, v), weight, ends, positions, implementation=implementation)
    want = outcome(rounded, weight, ends, positions, implementation="dense")
    for left, right in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert left.dtype == jnp.bfloat16
        # 8 bits of mantissa: probabilities and results are rounded, sums are not.
        np.testing.assert_allclose(
            left.astype(jnp.float32), right, rtol=0, atol=0.02 * float(jnp.abs(right).max())
        )


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("implementation", ["dense", *BY_BLOCKS])
def test_queries_may_be_a_part_of_the_row_and_keys_in_another_order(
    random_rows: Rows, implementation: Implementation, window: int | None
) -> None:
    rng = np.random.default_rng(5)
    ends, positions = map(jnp.asarray, random_rows(rng, 2, 48))
    q, k, v = inputs(rng, rows=2, heads=4, kv=2, length=48, size=8)
    queries, keys = jnp.asarray([4, 1, 2]), jnp.asarray([2, 0, 5, 3, 1, 4])
    own, moved = ((blocks[:, None] * 8 + jnp.arange(8)).reshape(-1) for blocks in (queries, keys))
    weight = jnp.zeros_like(q).at[:, :, own].set(jnp.asarray(rng.normal(size=(2, 4, 24, 8))))

    @jax.jit
    def part(arrays: Arrays) -> tuple[jax.Array, Arrays]:
        plan = block_plan(
            ends[:, moved],
            8,
            positions=positions[:, moved],
            window=window,
            query_blocks=queries,
            key_blocks=keys,
        )

        def total(arrays: Arrays) -> tuple[jax.Array, jax.Array]:
            mixed = attend(
                *arrays,
                ends[:, moved],
                positions=positions[:, moved],
                window=window,
                scale=0.3,
                block=8,
                implementation=implementation,
                plan=plan,
            )
            return jnp.sum(mixed * weight[:, :, own]), mixed

        gradients, mixed = jax.grad(total, has_aux=True)(arrays)
        return mixed, gradients

    mixed, (dq, dk, dv) = outcome(
        (q, k, v), weight, ends, positions, implementation="dense", window=window
    )
    want = mixed[:, :, own], (dq[:, :, own], dk[:, :, moved], dv[:, :, moved])
    assert_close(part((q[:, :, own], k[:, :, moved], v[:, :, moved])), want)
    assert not jnp.abs(dk[:, :, 40:]).any()  # no query at hand sees the last block


@pytest.mark.parametrize("blocks", [[0, 1, 2], [1]])
def test_a_simulated_tpu_reads_nothing_unwritten_and_gets_the_same(
    random_rows: Rows, blocks: list[int]
) -> None:
    """Memory that was not written is NaN there, copies run apart from the kernel."""
    rng = np.random.default_rng(4)
    ends, positions = map(jnp.asarray, random_rows(rng, 2, 24))
    q, k, v = inputs(rng, rows=2, heads=4, kv=2, length=24, size=8)
    plan = block_plan(ends, 8, query_blocks=jnp.asarray(blocks))
    own = np.concatenate([np.arange(8) + 8 * block for block in blocks])
    weight = jnp.zeros_like(q).at[:, :, own].set(q[:, :, own])
    simulated = InterpretParams(uninitialized_memory="nan", detect_races=True)

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        grouped = q[:, :, own].reshape(2, 2, 2, -1, 8)
        given = Given(grouped, k, v, ends, positions, positions[:, own])
        mixed = attend_tpu(given, plan, 0.3, interpret=simulated).reshape(2, 4, -1, 8)
        return jnp.sum(mixed * weight[:, :, own]), mixed

    gradients, mixed = jax.jit(jax.grad(total, (0, 1, 2), has_aux=True))(q, k, v)
    want, want_gradients = outcome((q, k, v), weight, ends, positions, implementation="dense")
    assert_close((mixed, gradients), (want[:, :, own], want_gradients))


def step(
    q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array, *, window: int | None, block: int
) -> tuple[jax.Array, Arrays]:
    """Value and gradients with the TPU kernels."""

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        mixed = attend(
            q,
            k,
            v,
            ends,
            positions=ends,
            window=window,
            scale=0.1,
            block=block,
            implementation="pallas",
        )
        return mixed.astype(jnp.float32).sum()

    value, gradient = jax.value_and_grad(total, (0, 1, 2))(q, k, v)
    return value, gradient


def specs(
    rows: int, heads: int, kv: int, length: int, size: int, kind: jnp.dtype
) -> tuple[jax.ShapeDtypeStruct, ...]:
    shapes = [(rows, count, length, size) for count in (heads, kv, kv)]
    arrays = [jax.ShapeDtypeStruct(shape, kind) for shape in shapes]
    return (*arrays, jax.ShapeDtypeStruct((rows, length), jnp.dtype(jnp.int32)))


BFLOAT16, FLOAT32 = jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float32)


@pytest.mark.parametrize(
    ("shape", "kind", "window", "block"),
    [
        ((1, 28, 4, 32768, 128), BFLOAT16, None, 512),
        ((1, 28, 4, 32768, 128), BFLOAT16, 4096, 1024),
        ((2, 9, 3, 2000, 64), FLOAT32, None, 128),
    ],
)
def test_the_kernels_lower_for_tpus_forward_and_backward(
    shape: tuple[int, int, int, int, int], kind: jnp.dtype, window: int | None, block: int
) -> None:
    function = jax.jit(partial(step, window=window, block=block))
    text = function.trace(*specs(*shape, kind)).lower(lowering_platforms=("tpu",)).as_text()
    for kernel in ("forward_kernel", "query_gradient_kernel", "key_gradient_kernel"):
        assert text.count(f'kernel_name = "{kernel}"') == 1


def test_a_rematerialization_policy_can_keep_the_outcome() -> None:
    def mixed(q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array) -> jax.Array:
        return jnp.sin(attend(q, k, v, ends, scale=0.1, block=128, implementation="blocked"))

    def walks(*names: str) -> int:
        policy = jax.checkpoint_policies.save_only_these_names(*names)
        kept = jax.checkpoint(mixed, policy=policy)
        slope = jax.grad(lambda *arrays: kept(*arrays).sum(), (0, 1, 2))
        return str(jax.make_jaxpr(slope)(*specs(1, 4, 2, 256, 64, FLOAT32))).count("while[")

    assert walks() == 3  # forward, forward again, backward
    assert walks("attention_out", "attention_normalizer") == 2


@pytest.mark.parametrize("check_vma", [False, True])
@pytest.mark.parametrize("implementation", ["blocked", "pallas"])
def test_a_mesh_may_split_the_heads(implementation: Implementation, check_vma: bool) -> None:
    mesh = AbstractMesh((4,), ("heads",), axis_types=(AxisType.Auto,))
    split, whole = P(None, "heads"), P()

    def local(q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array) -> jax.Array:
        return attend(q, k, v, ends, scale=0.1, block=512, implementation=implementation)

    sharded = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(split, split, split, whole),
        out_specs=split,
        check_vma=check_vma,
    )

    def total(q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array) -> jax.Array:
        return sharded(q, k, v, ends).astype(jnp.float32).sum()

    function = jax.jit(jax.grad(total, (0, 1, 2))).trace(*specs(1, 28, 4, 32768, 128, BFLOAT16))
    platform = "tpu" if implementation == "pallas" else "cpu"
    text = function.lower(lowering_platforms=(platform,)).as_text()
    assert ("tpu_custom_call" in text) == (implementation == "pallas")


def test_blocks_are_held_in_no_memory_that_grows_with_the_square() -> None:
    def total(q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array) -> jax.Array:
        return attend(q, k, v, ends, scale=0.1, block=128, implementation="blocked").sum()

    function = jax.jit(jax.grad(total, (0, 1, 2)))
    analysis = function.lower(*specs(1, 4, 2, 4096, 32, FLOAT32)).compile().memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 4 * 4096 * 4096  # the scores of one head alone


def test_bad_input_is_refused_by_name() -> None:
    rng = np.random.default_rng(0)
    q, k, v = inputs(rng, rows=1, heads=4, kv=2, length=6, size=8)
    ends = jnp.full((1, 6), 6, jnp.int32)
    blocked = partial(attend, scale=1.0, block=4, implementation="blocked")
    with pytest.raises(ValueError, match=r"q must be \[B, H, T, D\]"):
        blocked(q[0], k, v, ends)
    with pytest.raises(ValueError, match="k and v both"):
        blocked(q, k, v[:, :1], ends)
    with pytest.raises(ValueError, match="must agree in B, T and D"):
        blocked(q[:, :, :5], k, v, ends)
    with pytest.raises(ValueError, match="the 2 key heads must divide the 3 query heads"):
        blocked(q[:, :3], k, v, ends)
    with pytest.raises(ValueError, match=r"ends must be \[B, T\] = \(1, 6\), not \(1, 5\)"):
        blocked(q, k, v, ends[:, :5])
    with pytest.raises(ValueError, match=r"ends\[0, 5\] is 5"):
        blocked(q, k, v, ends - 1)
    with pytest.raises(ValueError, match="a window needs positions"):
        blocked(q, k, v, ends, window=3)
    with pytest.raises(ValueError, match="the plan was made for block=2, window=None"):
        blocked(q, k, v, ends, plan=block_plan(ends, 2))
    with pytest.raises(ValueError, match=r"rows and blocks \(1, 2\), these rows need \(1, 3\)"):
        blocked(q, k, v, ends, plan=block_plan(ends[:, :4] - 2, 4))
    with pytest.raises(
        ValueError, match=r"queries are of rows and blocks \(1, 3\), .* need \(1, 2\)"
    ):
        blocked(q[:, :, :4], k, v, ends, plan=block_plan(ends, 4))
    with pytest.raises(ValueError, match="for a part of the queries, pass the plan of these"):
        blocked(q[:, :, :4], k, v, ends)
    with pytest.raises(ValueError, match="block=4 must be a multiple of 128"):
        blocked(q, k, v, ends, implementation="pallas")
    with pytest.raises(ValueError, match="implementation='flash': choose dense, blocked"):
        blocked(q, k, v, ends, implementation=cast(Implementation, "flash"))
