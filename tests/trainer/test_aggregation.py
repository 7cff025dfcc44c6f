"""Weights of tokens from counts, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.trainer.aggregation import aggregate

# Two groups: one trajectory of two sequences (2 + 3 tokens) and one of 4; one of 1 and one of none.
TOKENS = [[2, 3, 4], [1, 0]]
FIRST = [[True, False, True], [True, True]]


def test_constant_and_token_mean_weigh_every_token_alike() -> None:
    ones = [[1.0, 1.0, 1.0], [1.0, 1.0]]
    assert aggregate(TOKENS, FIRST, "constant") == (ones, 4)
    assert aggregate(TOKENS, FIRST, "token_mean") == (ones, 10)


def test_sequence_mean_weighs_by_the_whole_trajectory() -> None:
    weights, divisor = aggregate(TOKENS, FIRST, "sequence_mean")
    assert weights == [[1 / 5, 1 / 5, 1 / 4], [1.0, 0.0]]
    assert divisor == 4


def test_prompt_mean_weighs_by_the_group_and_leaves_empty_ones_out() -> None:
    weights, divisor = aggregate([*TOKENS, [0]], [*FIRST, [True]], "prompt_mean")
    assert weights == [[1 / 9] * 3, [1.0, 1.0], [0.0]]
    assert divisor == 2


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=5))
def test_means_have_weights_that_add_up_to_one(tokens: list[list[int]]) -> None:
    first = [[True] * len(group) for group in tokens]
    for aggregation in ("token_mean", "sequence_mean", "prompt_mean"):
        weights, divisor = aggregate(tokens, first, aggregation)
        total = sum(
            weight * count
            for group, counts in zip(weights, tokens, strict=True)
            for weight, count in zip(group, counts, strict=True)
        )
        assert total / divisor == pytest.approx(1.0)
