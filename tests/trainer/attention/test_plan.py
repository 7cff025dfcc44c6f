"""Block plans against the whole mask, built pair by pair."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.trainer.attention import BlockPlan, block_plan, visited_blocks
from patchgym.trainer.attention.mask import pad_row, visible
from patchgym.trainer.attention.visits import Visits

Ints = npt.NDArray[np.int32]
Rows = Callable[[np.random.Generator, int, int], tuple[Ints, Ints]]


def pairs(visits: Visits) -> list[tuple[int, int]]:
    """The listed pairs of one row, read block by block as the kernels do."""
    starts = np.asarray(visits.starts)
    outer, inner = np.asarray(visits.outer), np.asarray(visits.inner)
    found = []
    for block in range(len(starts) - 1):
        for place in range(starts[block], starts[block + 1]):
            assert outer[place] == block
            found.append((block, int(inner[place])))
    return found


def slow_blocks(
    ends: Ints, positions: Ints, block: int, window: int | None
) -> set[tuple[int, int]]:
    """Pairs of blocks with a visible pair, by looking at every pair."""
    return {
        (q // block, k // block)
        for q in range(len(ends))
        for k in range(q + 1)
        if q < ends[k] and (window is None or positions[q] - positions[k] < window)
    }


def test_golden_plan() -> None:
    # Two sequences of 3 tokens after a prompt of 2, then a segment of 4; blocks of 4.
    ends = jnp.asarray([8, 8, 5, 5, 5, 8, 8, 8, 12, 12, 12, 12], jnp.int32)
    plan = block_plan(ends, 4)
    assert pairs(plan.queries) == [(0, 0), (1, 0), (1, 1), (2, 2)]
    assert pairs(plan.keys) == [(0, 0), (0, 1), (1, 1), (2, 2)]
    assert plan.queries.outer.tolist() == [0, 1, 1, 2, 2, 2]
    assert int(visited_blocks(plan)) == 4


def test_plain_causal_attention_visits_every_block_below_the_diagonal() -> None:
    ends = jnp.full((2, 40), 40, jnp.int32)
    assert visited_blocks(block_plan(ends, 8)).tolist() == [15, 15]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.sampled_from([5, 33]),
    block=st.sampled_from([1, 8]),
    window=st.sampled_from([None, 5]),
    laminar=st.booleans(),
)
def test_a_plan_lists_exactly_the_blocks_that_see_each_other(
    random_rows: Rows, seed: int, length: int, block: int, window: int | None, laminar: bool
) -> None:
    rng = np.random.default_rng(seed)
    ends, positions = random_rows(rng, 2, length)
    if not laminar:  # whatever a caller writes into `ends`, tree or not
        ends = rng.integers(np.arange(length) + 1, length + 1, (2, length)).astype(np.int32)
        positions = rng.integers(0, 12, (2, length)).astype(np.int32)
    plan = block_plan(jnp.asarray(ends), block, positions=jnp.asarray(positions), window=window)
    for row in range(2):
        one: BlockPlan = jax.tree.map(lambda array, row=row: np.asarray(array)[row], plan)
        forward, backward = pairs(one.queries), pairs(one.keys)
        blocks = -(-length // block)
        padding = {(index, index) for index in range(blocks)}
        assert set(forward) == slow_blocks(ends[row], positions[row], block, window) | padding
        assert {(query, key) for key, query in backward} == set(forward)
        assert len(forward) == len(set(forward)) == len(backward) == visited_blocks(plan)[row]


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    some=st.sampled_from([1, 3, 8]),
    window=st.sampled_from([None, 5]),
    moved=st.booleans(),
)
def test_a_plan_of_a_part_lists_exactly_what_its_queries_see(
    random_rows: Rows, seed: int, some: int, window: int | None, moved: bool
) -> None:
    rng = np.random.default_rng(seed)
    blocks, block = 8, 4
    ends, positions = (array[0] for array in random_rows(rng, 1, blocks * block))
    queries = rng.permutation(blocks)[:some].astype(np.int32)
    keys = rng.permutation(blocks).astype(np.int32) if moved else np.arange(blocks, dtype=np.int32)
    order = (keys[:, None] * block + np.arange(block)).ravel()
    plan = block_plan(
        jnp.asarray(ends[order]),
        block,
        positions=jnp.asarray(positions[order]),
        window=window,
        query_blocks=jnp.asarray(queries),
        key_blocks=jnp.asarray(keys) if moved else None,
    )
    forward = [(int(queries[query]), int(keys[key])) for query, key in pairs(plan.queries)]
    backward = [(int(queries[query]), int(keys[key])) for key, query in pairs(plan.keys)]
    seen = slow_blocks(ends, positions, block, window)
    assert set(forward) == set(backward) == {pair for pair in seen if pair[0] in queries}
    assert len(forward) == len(set(forward)) == len(backward) == visited_blocks(plan)
    assert plan.queries.outer_blocks.tolist() == plan.keys.inner_blocks.tolist() == queries.tolist()
    assert plan.queries.inner_blocks.tolist() == plan.keys.outer_blocks.tolist() == keys.tolist()


def test_a_part_has_room_for_what_its_last_queries_may_see() -> None:
    # Of 4 blocks, the last two see 3 and 4.
    plan = block_plan(jnp.full(8, 8, jnp.int32), 2, query_blocks=jnp.asarray([3, 2]))
    assert plan.queries.outer.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert plan.queries.inner.tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert plan.keys.inner.tolist() == [0, 1, 0, 1, 0, 1, 0]
    few = block_plan(jnp.asarray([1, 2, 3, 4, 5, 6, 7, 8]), 2, query_blocks=jnp.asarray([2]))
    assert few.keys.starts.tolist() == [0, 0, 0, 1, 1]  # three key blocks that nobody sees
    assert few.keys.outer.tolist() == [2, 2, 2, 2]


def test_a_plan_may_be_made_inside_jit() -> None:
    ends = jnp.asarray([[5, 5, 3, 5, 5, 6]], jnp.int32)
    inside = jax.jit(lambda ends: block_plan(ends, 2))(ends)
    for got, want in zip(
        jax.tree.leaves(inside), jax.tree.leaves(block_plan(ends, 2)), strict=True
    ):
        assert got.tolist() == want.tolist()
    assert (inside.block, inside.window) == (2, None)


def test_golden_mask() -> None:
    ends, positions = jnp.asarray([4, 3, 3, 4]), jnp.asarray([0, 1, 2, 1])
    assert visible(ends, positions, None).astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 1, 1, 0],
        [1, 0, 0, 1],
    ]
    assert visible(ends, positions, 2).astype(int).tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [1, 0, 0, 1],
    ]


def test_padding_sees_only_itself() -> None:
    ends, positions = pad_row(jnp.asarray([3, 3, 3]), jnp.asarray([0, 1, 2]), 4)
    assert (ends.tolist(), positions.tolist()) == ([3, 3, 3, 4], [0, 1, 2, 0])


@pytest.mark.parametrize(
    ("ends", "settings", "message"),
    [
        ([2, 1], {}, r"ends\[1\] is 1: it must lie after its own index"),
        ([2, 3], {}, r"ends\[1\] is 3: .* at most at the row's length 2"),
        ([2, 2], {"block": 0}, "block=0 and window=None must be at least 1"),
        ([2, 2], {"window": 0}, "window=0 must be at least 1"),
        ([2, 2], {"window": 4}, "a window needs positions"),
    ],
)
def test_bad_rows_are_refused(ends: list[int], settings: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block_plan(jnp.asarray(ends), settings.get("block", 2), window=settings.get("window"))


@pytest.mark.parametrize(
    ("length", "parts", "message"),
    [
        (7, {"query_blocks": [0]}, "7 tokens are not whole blocks of 2: pad the row to 8"),
        (
            8,
            {"query_blocks": [1, 1]},
            r"query_blocks=\[1, 1\] must be different numbers from 0 to 3",
        ),
        (8, {"query_blocks": [4]}, r"query_blocks=\[4\] must be different numbers from 0 to 3"),
        (8, {"query_blocks": []}, r"query_blocks must be a list of 1 to 4 blocks, not of shape"),
        (8, {"query_blocks": [[0]]}, r"a list of 1 to 4 blocks, not of shape \(1, 1\)"),
        (8, {"key_blocks": [0, 1]}, "key_blocks names 2 blocks, but keys are all 4"),
        (8, {"key_blocks": [1, 0, 2, 3]}, r"ends\[0\] is 2: it must lie after its own index"),
    ],
)
def test_parts_that_the_row_does_not_have_are_refused(
    length: int, parts: dict[str, list[object]], message: str
) -> None:
    named = [
        jnp.asarray(parts[name], jnp.int32) if name in parts else None
        for name in ("query_blocks", "key_blocks")
    ]
    ends = jnp.arange(length) // 2 * 2 + 2
    with pytest.raises(ValueError, match=message):
        block_plan(ends, 2, query_blocks=named[0], key_blocks=named[1])
