"""Rank correlations against their definitions, pair by pair."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.trainer.ranks import kendall, ranks, spearman

FEW = st.integers(0, 4).map(float)  # so that there are ties
PAIRS = st.lists(st.tuples(FEW, FEW) | st.tuples(st.floats(-9, 9), st.floats(-9, 9)), max_size=40)


def sign(value: float) -> int:
    return (value > 0) - (value < 0)


def tau_by_pairs(first: list[float], second: list[float]) -> float | None:
    pairs = list(combinations(zip(first, second, strict=True), 2))
    score = sum(sign(a - c) * sign(b - d) for (a, b), (c, d) in pairs)
    one = sum(a != c for (a, _), (c, _) in pairs)
    other = sum(b != d for (_, b), (_, d) in pairs)
    return score / math.sqrt(one * other) if one and other else None


def rank_by_counting(values: list[float], place: int) -> float:
    below = sum(each < values[place] for each in values)
    return below + (sum(each == values[place] for each in values) + 1) / 2


@given(PAIRS)
def test_kendall_is_what_counting_all_pairs_gives(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    assert kendall(first, second) == pytest.approx(tau_by_pairs(first, second))


@given(PAIRS)
def test_spearman_is_pearson_of_counted_ranks(pairs: list[tuple[float, float]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    one = [rank_by_counting(first, place) for place in range(len(first))]
    other = [rank_by_counting(second, place) for place in range(len(second))]
    assert ranks(first) == one
    middle = (len(pairs) + 1) / 2
    covariance = sum((a - middle) * (b - middle) for a, b in zip(one, other, strict=True))
    spread = sum((a - middle) ** 2 for a in one) * sum((b - middle) ** 2 for b in other)
    expected = covariance / math.sqrt(spread) if spread else None
    assert spearman(first, second) == pytest.approx(expected, abs=1e-9)


def test_a_reversed_order_is_minus_one_and_no_spread_is_none() -> None:
    assert (spearman([1, 2, 3], [3, 2, 1]), kendall([1, 2, 3], [3, 2, 1])) == (-1, -1)
    assert (spearman([1, 1], [1, 2]), kendall([1, 1], [1, 2])) == (None, None)
    assert (spearman([], []), kendall([1], [1])) == (None, None)


def test_a_hand_worked_example_with_ties() -> None:
    """Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: 4.5 / sqrt(4.5 * 5); 5 of 6 pairs, one tied."""
    assert spearman([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert kendall([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(5 / math.sqrt(5 * 6))
