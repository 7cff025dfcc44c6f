"""pass@k: the estimator against counting every choice, and what is left out."""

from __future__ import annotations

from itertools import combinations

import pytest

from patchgym.sandbox.testing.report import wilson
from patchgym.trainer.agent_evaluation import estimate, pass_at_k
from patchgym.trainer.agent_evaluation.estimates import ladder


@pytest.mark.parametrize("samples", range(1, 7))
def test_it_is_the_share_of_choices_that_hold_a_success(samples: int) -> None:
    for resolved in range(samples + 1):
        outcomes = [place < resolved for place in range(samples)]
        for k in range(1, samples + 1):
            choices = list(combinations(outcomes, k))
            share = sum(any(choice) for choice in choices) / len(choices)
            assert pass_at_k(samples, resolved, k) == pytest.approx(share)


def test_many_samples_overflow_nothing() -> None:
    assert pass_at_k(5000, 1, 2500) == pytest.approx(0.5)
    assert pass_at_k(5000, 0, 5000) == 0
    assert pass_at_k(5000, 5000, 1) == 1


@pytest.mark.parametrize("wrong", [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_nonsense_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no pass@"):
        pass_at_k(*wrong)


def test_tasks_with_too_few_known_samples_are_left_out() -> None:
    outcomes = {"a": [True, False], "b": [False, False], "c": [True]}
    first, second = estimate(outcomes, 1), estimate(outcomes, 2)
    assert first is not None and second is not None
    assert (first.tasks, round(first.rate, 9)) == (3, 0.5)
    assert (second.tasks, round(second.rate, 9)) == (2, 0.5)
    assert second.interval == wilson(0.5, 2)
    assert estimate(outcomes, 3) is None
    assert estimate({}, 1) is None


def test_the_ladder_ends_at_the_samples() -> None:
    assert [ladder(n) for n in (1, 2, 3, 4, 10)] == [
        [1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 8, 10]
    ]  # fmt: skip
