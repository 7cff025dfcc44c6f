"""Prefix-tree rows: what they hold, and that loss and gradient equal those of flat rows."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_inputs import forked_group, join, observed, sampled, tiny_learner

from patchgym.trainer.batching import Batch, TrainSequence, flat_rows, pack
from patchgym.trainer.learner import Learner


def _simple(tokens: list[int], advantage: float, prompt: int = 2) -> TrainSequence:
    size = len(tokens)
    mask = np.arange(size) >= prompt
    return TrainSequence(
        tokens=np.asarray(tokens, np.int32),
        loss_mask=mask,
        sampler_logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
        advantage=advantage,
    )


def test_golden_row() -> None:
    group = [_simple([7, 8, 1, 2], 1.0), _simple([7, 8, 1, 3, 4], -2.0), _simple([7, 8, 5], 0.5)]
    batch = pack([group], row_tokens=(8, 12))
    (row,) = batch.rows
    assert row.tokens.tolist() == [7, 8, 1, 2, 3, 4, 5, 0]
    assert row.positions.tolist() == [0, 1, 2, 3, 3, 4, 2, 0]
    assert row.ends.tolist() == [7, 7, 6, 4, 6, 6, 7, 8]
    assert (row.used, row.read, row.length) == (7, 5, 8)
    assert row.reads.targets.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    assert row.reads.readers.tolist() == [1, 2, 2, 4, 1, 0, 0, 0]
    assert row.reads.positive.tolist() == [1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0]
    assert row.reads.negative.tolist() == [-2.0, 0.0, -2.0, -2.0, 0.0, 0.0, 0.0, 0.0]
    assert row.reads.sharing.tolist() == [2.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert (batch.sequences, batch.flat_tokens, batch.tree_tokens) == (3, 12, 7)
    assert (batch.padded_tokens, batch.loss_tokens) == (8, 6)


def test_tokens_are_shared_whatever_the_loss_reads_of_them() -> None:
    one = _simple([7, 8, 1, 2], 1.0)
    other = dataclasses.replace(one, sampler_logprobs=one.sampler_logprobs - one.loss_mask)
    unmasked = dataclasses.replace(one, loss_mask=np.asarray([False, False, False, True]))
    for second, reads in ((one, 2), (other, 4), (unmasked, 2)):
        batch = pack([[one, second]], row_tokens=(16,))
        assert (batch.tree_tokens, batch.rows[0].read) == (4, reads)


def test_without_sharing_reads_each_sequence_has_its_own() -> None:
    mask = np.asarray([False, False, True, False, True])
    one = dataclasses.replace(_simple([7, 8, 1, 9, 2], 1.0), loss_mask=mask)
    other = dataclasses.replace(one, advantage=-2.0)
    assert pack([[one, other]], row_tokens=(16,)).rows[0].read == 2
    (row,) = pack([[one, other]], row_tokens=(16,), share_sampled=False).rows
    assert row.tokens[: row.used].tolist() == [7, 8, 1, 9, 2]
    assert row.reads.targets[: row.read].tolist() == [1, 1, 2, 2]
    assert row.reads.sharing[: row.read].tolist() == [1.0] * 4
    first, second, *_ = row.reads.owners[: row.read].tolist()
    assert row.reads.owners[: row.read].tolist() == [first, second, first, second]
    assert first != second


def test_a_row_has_room_for_what_is_read_too() -> None:
    mask = np.asarray([False, True, True, True])
    one = dataclasses.replace(_simple([7, 8, 1, 2], 1.0), loss_mask=mask)
    batch = pack([[one, one, one]], row_tokens=(8, 12), share_sampled=False)
    assert [(row.length, row.used, row.read) for row in batch.rows] == [(12, 4, 9)]


def test_sequences_of_other_groups_in_one_row_have_other_owners() -> None:
    groups = [[_simple([7, 8, 1], 1.0)], [_simple([7, 8, 1], 2.0)]]
    (row,) = pack(groups, row_tokens=(6,), share_sampled=False).rows
    assert len(set(row.reads.owners[: row.read].tolist())) == 2


def test_weights_are_in_the_advantages_and_beside_them() -> None:
    group = [_simple([7, 8, 1, 2], 1.0), _simple([7, 8, 1], -3.0), _simple([7, 8, 5], 0.0)]
    (row,) = pack([group], row_tokens=(8,), aggregation="sequence_mean").rows
    assert row.reads.positive[: row.read].tolist() == [0.5, 0.5]
    assert row.reads.negative[: row.read].tolist() == [-3.0, 0.0]
    assert row.reads.weights[: row.read].tolist() == [1.5, 0.5]
    whole = pack([group], row_tokens=(8,), aggregation="sequence_mean", keep_all=True)
    assert whole.divisor == 3
    assert whole.rows[0].reads.weights[:3].tolist() == [1.5, 0.5, 1.0]
    assert whole.rows[0].reads.positive[2] == 0.0


def test_groups_do_not_share_and_long_groups_are_split() -> None:
    one = _simple([7, 8, 1, 2], 1.0)
    assert pack([[one], [one]], row_tokens=(16,)).tree_tokens == 8
    group = [_simple([7, 8, 10 + i, 2, 3], 1.0) for i in range(4)]
    batch = pack([group], row_tokens=(8,))
    assert [row.used for row in batch.rows] == [8, 8]
    assert batch.tree_tokens == 16


def test_what_has_nothing_to_learn_takes_no_room_but_counts() -> None:
    group = [_simple([7, 8, 1], 0.0), _simple([7, 8], 1.0), _simple([7, 8, 2], 1.0)]
    batch = pack([group, []], row_tokens=(8,))
    assert (batch.sequences, batch.tree_tokens) == (3, 3)
    assert pack([], row_tokens=(8,)).rows == ()


def test_too_long_is_an_error_that_says_what_to_do() -> None:
    group = [_simple([7, 8, 1], 1.0), _simple(list(range(9)), 1.0)]
    with pytest.raises(ValueError, match=r"group 0 has 9 tokens, the longest row 8: raise"):
        pack([group], row_tokens=(4, 8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss_mask": np.asarray([True, True, True])}, "first token"),
        ({"loss_mask": np.asarray([False, True])}, "one length"),
        ({"sampler_logprobs": np.asarray([0, 0, -np.inf], np.float32)}, "finite where"),
        ({"advantage": float("nan")}, "advantage must be finite"),
    ],
)
def test_bad_sequences_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(_simple([7, 8, 1], 1.0), **change)  # type: ignore[arg-type]


@functools.cache
def _learner() -> Learner:
    """One for all tests, which only ask for gradients: its programs are compiled once."""
    return tiny_learner()


def _equal(batch: Batch, reference: Batch) -> None:
    learner = _learner()
    loss, gradient = learner.gradient(batch)
    want_loss, want_gradient = learner.gradient(reference)
    assert abs(loss - want_loss) < 1e-5
    for got, want in zip(jax.tree.leaves(gradient), jax.tree.leaves(want_gradient), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("row_tokens", [(48,), (24,), (24, 64)])
def test_loss_and_gradient_equal_flat_rows(row_tokens: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    groups = [forked_group(rng) for _ in range(3)]
    batch = pack(groups, row_tokens=row_tokens)
    assert batch.tree_tokens <= batch.flat_tokens
    if row_tokens == (48,):
        assert any((row.reads.positive * row.reads.negative != 0).any() for row in batch.rows)
    _equal(batch, flat_rows(groups, length=64))


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_any_tree_equals_flat_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    prompt = observed(rng, int(rng.integers(1, 8)))
    turns = [sampled(rng, int(rng.integers(1, 6))) for _ in range(3)]
    group = [
        join([prompt, *(turns[int(i)] for i in rng.integers(0, 3, rng.integers(1, 4)))], a)
        for a in rng.normal(size=5).tolist()
    ]
    _equal(pack([group], row_tokens=(32, 64)), flat_rows([group], length=64))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_rows_lose_and_double_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [
        [join([observed(rng, 3), sampled(rng, int(rng.integers(1, 20)))], 1.0) for _ in range(4)]
        for _ in range(int(rng.integers(1, 5)))
    ]
    batch = pack(groups, row_tokens=(24, 40, 64))
    assert sum(row.reads.sharing.sum() for row in batch.rows) == batch.loss_tokens
    assert batch.loss_tokens == sum(int(s.loss_mask.sum()) for group in groups for s in group)
    for row in batch.rows:
        assert row.length in (24, 40, 64)
        assert row.used <= row.length
        # Every reader stands before its target, one position up, and is visible to it.
        places = {(int(row.tokens[i]), int(row.positions[i])) for i in range(row.used)}
        for reader, target in zip(row.reads.readers[: row.read], row.reads.targets, strict=False):
            assert (int(target), int(row.positions[reader]) + 1) in places
