"""Prefix-tree rows: what they hold, and that loss and gradient equal those of flat rows."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from patchgym.trainer.loss_config import LossConfig
from patchgym.trainer.losses import RowTokens, row_sums, token_logprobs
from patchgym.trainer.model import ModelConfig
from patchgym.trainer.model.decoder import Params, head_weight, hidden_states, init_params
from patchgym.trainer.tree import (
    Branch,
    TreeRow,
    first_fit,
    prefix_tree,
    split,
    tree_row,
    tree_rows,
)

MODEL = ModelConfig(
    vocabulary=17, width=16, layers=2, heads=4, kv_heads=2, head_dim=4, ffn=24, tied=False
)
ROW, FLAT, MEMBERS = 72, 36, 8
"""Tokens of a tree row, tokens of a flat row, and flat rows."""
CLIPPED = LossConfig(loss="clipped")
SEQUENCES = LossConfig(loss="gspo", clip_low=0.04, clip_high=0.04)
LOG_RATIOS = (-0.6, -0.1, 0.0, 0.1, 0.6, 1.0)
"""Both clips and the cap act at some; none is near a bound, where rounding would decide."""


def branch(ids: list[int], advantage: float, logprob: float = -1.0, prompt: int = 2) -> Branch:
    return Branch(
        tokens=np.asarray(ids, np.int32),
        masked=np.arange(len(ids)) >= prompt,
        logprobs=np.full(len(ids), logprob, np.float32),
        advantage=advantage,
    )


def test_golden_row() -> None:
    group = [
        branch([7, 8, 1, 2], 1.0),
        branch([7, 8, 1, 3, 4], -2.0),
        branch([7, 8, 5], 0.5),
        branch([7, 8, 1, 2], 3.0, logprob=-2.0),
    ]
    (row,) = tree_rows([group, [branch([9, 9, 6], 4.0)]], 12)
    assert row.tokens.tolist() == [7, 8, 1, 2, 3, 4, 5, 9, 9, 6, 0, 0]
    assert row.positions.tolist() == [0, 1, 2, 3, 3, 4, 2, 0, 1, 2, 0, 0]
    assert row.ends.tolist() == [7, 7, 6, 4, 6, 6, 7, 10, 10, 10, 11, 12]
    assert (row.used, row.read) == (10, 8)
    reads = row.reads
    # Tokens 1 and 2 were drawn at two log-probabilities: one place, two reads each.
    assert reads.targets.tolist() == [1, 1, 2, 2, 3, 4, 5, 6, 0, 0, 0, 0]
    assert reads.readers.tolist() == [1, 1, 2, 2, 2, 4, 1, 8, 0, 0, 0, 0]
    assert reads.sampler_logprobs.tolist() == [-1, -2, -1, -2, -1, -1, -1, -1, 0, 0, 0, 0]
    assert reads.positive.tolist() == [1, 3, 1, 3, 0, 0, 0.5, 4, 0, 0, 0, 0]
    assert reads.negative.tolist() == [-2, 0, 0, 0, -2, -2, 0, 0, 0, 0, 0, 0]
    assert reads.sharing.tolist() == [2, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]


def test_context_that_another_sequence_sampled_is_stored_once_and_read_once() -> None:
    first, later = branch([7, 8, 1, 2], 1.0), branch([7, 8, 1, 2, 5, 6], 1.0, prompt=5)
    tree = prefix_tree([first, later])
    assert tree.tokens.tolist() == [7, 8, 1, 2, 5, 6]
    assert tree.reads.targets.tolist() == [1, 2, 6]
    assert tree.reads.sharing.tolist() == [1, 1, 1]


def test_without_merging_every_sequence_keeps_its_own_reads() -> None:
    pair = [
        Branch(
            tokens=np.asarray([7, 8, 1], np.int32),
            masked=np.asarray([False, False, True]),
            logprobs=np.full(3, -1, np.float32),
            advantage=1.0,
            weight=0.5,
            owner=owner,
        )
        for owner in (4, 9)
    ]
    alone, merged = prefix_tree(pair, merge=False), prefix_tree(pair)
    assert alone.tokens.tolist() == merged.tokens.tolist() == [7, 8, 1]
    assert alone.reads.owners.tolist() == [4, 9]
    assert alone.reads.weights.tolist() == [0.5, 0.5]
    assert (merged.reads.owners.tolist(), merged.reads.weights.tolist()) == ([4], [1.0])


def test_negative_zero_is_no_other_logprob() -> None:
    pair = [branch([7, 8, 1], 1.0, logprob=value) for value in (0.0, -0.0)]
    assert len(prefix_tree(pair).reads.targets) == 1


def test_a_long_group_is_split_and_its_prompt_repeated() -> None:
    group = [branch([7, 8, 10 + i, 2, 3], 1.0) for i in range(4)]
    assert [len(part) for part in split(group, 8)] == [2, 2]
    assert [row.used for row in tree_rows([group], 8)] == [8, 8]


def test_reads_are_bounded_by_the_row_as_tokens_are() -> None:
    group = [branch([7, 8, 1, 2, 3], 1.0, logprob=-1.0 - i) for i in range(4)]
    assert [len(part) for part in split(group, 8)] == [2, 2]
    assert [(row.used, row.read) for row in tree_rows([group], 16)] == [(5, 12)]
    trees = [prefix_tree(part) for part in split(group, 8)]
    assert len(first_fit(trees, 11)) == 2  # 10 tokens, but 12 reads
    with pytest.raises(ValueError, match="10 tokens and 12 reads don't fit in a row of 11"):
        tree_row(trees, 11)


def test_first_fit_puts_the_longest_first() -> None:
    trees = [prefix_tree([branch(list(range(n)), 1.0)]) for n in (3, 6, 4, 5)]
    assert [[len(t.tokens) for t in row] for row in first_fit(trees, 9)] == [[6, 3], [5, 4]]


def test_a_sequence_longer_than_the_row_is_an_error_that_names_it() -> None:
    groups = [[branch([7, 8, 1], 1.0)], [branch([7, 8, 1], 1.0), branch(list(range(9)), 1.0)]]
    with pytest.raises(ValueError, match="sequence 1 of group 1 has 9 tokens, the row 8: raise"):
        tree_rows(groups, 8)


@pytest.mark.parametrize(
    ("ids", "masked", "message"),
    [
        ([1, 2], [False], "one length, not"),
        ([], [], "one length, not"),
        ([1, 2], [True, True], "first token can't be read"),
        ([1, -2], [False, True], "can't be negative: -2"),
    ],
)
def test_bad_branches_are_refused(ids: list[int], masked: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Branch(
            tokens=np.asarray(ids, np.int32),
            masked=np.asarray(masked, np.bool_),
            logprobs=np.zeros(len(ids), np.float32),
            advantage=1.0,
        )
    with pytest.raises(ValueError, match="at least one branch"):
        prefix_tree([])


Path = tuple[list[int], list[bool], list[float]]
"""Ids, whether sampled, and the log-ratio that the token is to have."""


def grown(rng: np.random.Generator, path: Path) -> Path:
    """`path`, and one to three turns after it: sampled tokens, then observed ones."""
    ids, sampled, ratios = list(path[0]), list(path[1]), list(path[2])
    for _ in range(int(rng.integers(1, 4))):
        for drawn in (True, False):
            for _ in range(int(rng.integers(1, 5))):
                ids.append(int(rng.integers(MODEL.vocabulary)))
                sampled.append(drawn)
                ratios.append(float(rng.choice(LOG_RATIOS)))
    return ids[:FLAT], sampled[:FLAT], ratios[:FLAT]


def forked(rng: np.random.Generator, path: Path) -> Path:
    """A beginning of `path`; at times drawn at other probabilities, at times as context only."""
    stop = int(rng.integers(1, len(path[0]) + 1))
    ids, sampled, ratios = path[0][:stop], path[1][:stop], path[2][:stop]
    kind = rng.random()
    if kind < 0.25:
        ratios = rng.choice(LOG_RATIOS, stop).tolist()
    elif kind < 0.5:
        sampled = [False] * stop
    return ids, sampled, ratios


def random_groups(rng: np.random.Generator) -> list[list[Path]]:
    """Groups of uneven size, together at most `MEMBERS` sequences."""
    sizes = rng.multinomial(int(rng.integers(1, MEMBERS + 1)), np.full(3, 1 / 3))
    groups = []
    for size in sizes.tolist():
        start: Path = ([3], [False], [0.0])
        paths: list[Path] = []
        for _ in range(size):
            origin = paths[int(rng.integers(len(paths)))] if paths else start
            paths.append(grown(rng, forked(rng, origin)))
        groups.append(paths)
    return groups


def flat_arrays(paths: list[Path]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Ids and masks [MEMBERS, FLAT]."""
    tokens, masked = np.zeros((MEMBERS, FLAT), np.int32), np.zeros((MEMBERS, FLAT), np.bool_)
    for index, (ids, sampled, _) in enumerate(paths):
        tokens[index, : len(ids)], masked[index, : len(ids)] = ids, sampled
    return tokens, masked


def flat_logprobs(params: Params, tokens: jax.Array) -> jax.Array:
    """Of each token [MEMBERS, FLAT] given those before it; 0 for the first: all logits at once."""
    positions = jnp.broadcast_to(jnp.arange(FLAT, dtype=jnp.int32), tokens.shape)
    states = hidden_states(MODEL, params, tokens, positions, jnp.full_like(tokens, FLAT))
    table = jax.nn.log_softmax(states[:, :-1] @ head_weight(MODEL, params))
    chosen = jnp.take_along_axis(table, tokens[:, 1:, None], axis=2)[..., 0]
    return jnp.pad(chosen, ((0, 0), (1, 0)))


@partial(jax.jit, static_argnums=0)
def flat_gradient(
    loss: LossConfig,
    params: Params,
    tokens: jax.Array,
    masked: jax.Array,
    sampler: jax.Array,
    advantages: jax.Array,
) -> tuple[jax.Array, Params]:
    """Loss and gradient of one row a sequence."""

    def total(params: Params) -> jax.Array:
        each = jnp.broadcast_to(advantages[:, None], tokens.shape) * masked
        owners = jnp.broadcast_to(jnp.arange(MEMBERS, dtype=jnp.int32)[:, None], tokens.shape)
        read = RowTokens(
            logprobs=flat_logprobs(params, tokens).ravel(),
            entropies=jnp.zeros(tokens.size),
            sampler_logprobs=sampler.ravel(),
            positive=jnp.maximum(each, 0.0).ravel(),
            negative=jnp.minimum(each, 0.0).ravel(),
            sharing=masked.astype(jnp.float32).ravel(),
            weights=masked.astype(jnp.float32).ravel(),
            owners=owners.ravel(),
        )
        return -row_sums(loss, read).objective

    value, gradient = jax.value_and_grad(total)(params)
    return value, gradient


@partial(jax.jit, static_argnums=0)
def tree_gradient(
    loss: LossConfig, params: Params, row: dict[str, jax.Array]
) -> tuple[jax.Array, Params]:
    """Loss and gradient of one row of trees."""

    def total(params: Params) -> jax.Array:
        inputs = (row[name][None] for name in ("tokens", "positions", "ends"))
        states = hidden_states(MODEL, params, *inputs)[0][row["readers"]]
        head = head_weight(MODEL, params).T
        logprobs, entropies = token_logprobs(states, head, row["targets"], row["count"], 8)
        read = {name: row[name] for name in RowTokens._fields if name in row}
        tokens = RowTokens(logprobs=logprobs, entropies=entropies, **read)
        return -row_sums(loss, tokens).objective

    value, gradient = jax.value_and_grad(total)(params)
    return value, gradient


def row_arrays(row: TreeRow) -> dict[str, jax.Array]:
    reads = {name: getattr(row.reads, name) for name in row.reads.__slots__}
    own = {"tokens": row.tokens, "positions": row.positions, "ends": row.ends, "count": row.read}
    return {name: jnp.asarray(array) for name, array in {**own, **reads}.items()}


@pytest.fixture(scope="module")
def params() -> Params:
    return init_params(MODEL, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "merge"), [(CLIPPED, True), (SEQUENCES, False)])
def test_loss_and_gradient_equal_flat_rows_in_200_random_tries(
    params: Params, loss: LossConfig, merge: bool
) -> None:
    logprobs_of = jax.jit(flat_logprobs)
    saved = clipped = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        groups = random_groups(rng)
        paths = [path for group in groups for path in group]
        tokens, masked = flat_arrays(paths)
        # Rounded, so that equal tokens have equal bits in whatever row they were computed.
        logprobs = np.asarray(logprobs_of(params, jnp.asarray(tokens)), np.float32)
        sampler = logprobs.round(3)
        for index, (_, _, ratios) in enumerate(paths):
            sampler[index, : len(ratios)] -= np.asarray(ratios, np.float32)
        advantages = rng.normal(size=MEMBERS).astype(np.float32)
        branches = iter(
            Branch(
                tokens=tokens[index, : len(ids)],
                masked=masked[index, : len(ids)],
                logprobs=sampler[index, : len(ids)],
                advantage=float(advantages[index]),
                owner=index,
            )
            for index, (ids, _, _) in enumerate(paths)
        )
        rows = tree_rows([[next(branches) for _ in group] for group in groups], ROW, merge=merge)
        want, want_gradient = flat_gradient(
            loss, params, *(jnp.asarray(a) for a in (tokens, masked, sampler, advantages))
        )
        found = [tree_gradient(loss, params, row_arrays(row)) for row in rows]
        divisor = float(masked.sum())
        assert abs(sum(float(value) for value, _ in found) - float(want)) / divisor < 1e-6
        gradient = jax.tree.map(lambda *parts: sum(parts), *(part for _, part in found))
        got, expected = (np.asarray(ravel_pytree(g)[0]) for g in (gradient, want_gradient))
        # A row of few tokens has a large gradient: its norm is the unit.
        assert np.abs(got - expected).max() <= 1e-6 * np.linalg.norm(expected)
        saved += sum(len(ids) for ids, _, _ in paths) - sum(row.used for row in rows)
        clipped += int(np.isin(np.concatenate([r for _, _, r in paths]), (-0.6, 0.6, 1.0)).sum())
    assert saved > 3000 and clipped > 5000


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_every_read_sees_exactly_its_own_sequence(seed: int, merge: bool) -> None:
    rng = np.random.default_rng(seed)
    paths = [path for group in random_groups(rng)[:1] for path in group]
    group = [
        Branch(
            tokens=np.asarray(ids, np.int32),
            masked=np.asarray(sampled, np.bool_),
            logprobs=np.array(ratios).astype(np.float32),
            advantage=1.0,
            owner=index,
        )
        for index, (ids, sampled, ratios) in enumerate(paths)
    ]
    prefixes = {
        (*ids[: depth + 1], ratios[depth])
        for ids, sampled, ratios in paths
        for depth in range(len(ids))
        if sampled[depth]
    }
    found = []
    for row in tree_rows([group] if group else [], FLAT, merge=merge):
        reads = row.reads
        for reader, target, logprob in zip(
            reads.readers[: row.read], reads.targets, reads.sampler_logprobs, strict=False
        ):
            seen = (np.arange(FLAT) <= reader) & (reader < row.ends)
            ids = row.tokens[seen].tolist()
            assert row.positions[seen].tolist() == list(range(len(ids)))
            found.append((*ids, int(target), round(float(logprob), 1)))
        assert reads.sharing[: row.read].min(initial=1) >= 1 and not reads.sharing[row.read :].any()
    assert set(found) == prefixes
    if not merge:
        assert len(found) == sum(sum(sampled) for _, sampled, _ in paths)
