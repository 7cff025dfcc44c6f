"""Percentiles and pass rates, against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.sandbox import wilson
from patchgym.trainer.statistics import design_effect, pass_rate, percentile


def test_wilson_matches_the_textbook() -> None:
    # 10 of 100: Newcombe (1998) gives 0.0552 to 0.1744 for this case.
    low, high = wilson(0.1, 100)
    assert (round(low, 4), round(high, 4)) == (0.0552, 0.1744)


def test_no_success_still_leaves_room() -> None:
    low, high = wilson(0.0, 20)
    assert low == 0.0
    assert high == pytest.approx(0.1611, abs=1e-4)


def test_independent_samples_cost_nothing() -> None:
    clusters = [[True, False], [False, True], [True, False], [False, True]]
    assert design_effect(clusters) == 1.0


def test_identical_samples_of_a_task_count_once() -> None:
    clusters = [[True] * 4, [False] * 4, [True] * 4, [False] * 4]
    assert design_effect(clusters) == pytest.approx(4.0)
    result = pass_rate({str(i): c for i, c in enumerate(clusters)})
    assert result.samples == 16
    assert result.effective_samples == pytest.approx(4.0)
    assert result.pass_rate == 0.5


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=12))
def test_the_interval_holds_the_rate(clusters: list[list[bool]]) -> None:
    result = pass_rate({str(i): c for i, c in enumerate(clusters)})
    low, high = result.interval
    assert 0 <= low <= result.pass_rate + 1e-12
    assert result.pass_rate - 1e-12 <= high <= 1


def test_nearest_rank_percentiles() -> None:
    values = [float(v) for v in range(1, 101)]
    assert [percentile(values, s) for s in (0.5, 0.95, 0.99)] == [50.0, 95.0, 99.0]
    assert percentile([3.0], 0.99) == 3.0
    assert math.isnan(percentile([], 0.5))
