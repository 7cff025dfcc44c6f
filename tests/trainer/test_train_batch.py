"""What a step trains on: members with an advantage, by totals or component by component."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_builders import book, member, take
from patchgym.rewards import Score
from patchgym.trainer.group import Group, Member
from patchgym.trainer.loss_config import LossConfig
from patchgym.trainer.train_batch import by_component, train_groups


def group(*members: Member) -> Group:
    return Group(group_id="g", task_id="t", number=0, members=members)


def scored(tests: float, size: float | None, *, status: str = "measured") -> Member:
    """A member whose reward is the sum of two components."""
    one = member(take(book(), 1), tests - 0.5 * (size or 0.0))
    scores = (
        Score(name="tests", value=tests, weight=1.0),
        Score(name="patch_size", value=size, weight=-0.5, status=status),  # type: ignore[arg-type]
        Score(name="seen_only", value=0.7, weight=0.0),
    )
    return replace(one, reward=replace(one.reward, scores=scores))


def advantages(found: list[list[object]]) -> list[float]:
    return [sequence.advantage for sequences in found for sequence in sequences]  # type: ignore[attr-defined]


def test_by_totals_members_are_compared_within_their_group() -> None:
    two = group(scored(1.0, 0.0), scored(0.0, None, status="gated"))
    assert advantages(list(train_groups([two], "rloo"))) == [1.0, -1.0]  # type: ignore[arg-type]


def test_by_components_a_small_penalty_weighs_as_its_weight_says() -> None:
    """All solved it; their sizes differ by a hundredth, which is all the signal there is."""
    four = group(*(scored(1.0, size) for size in (0.0, 0.01, 0.0, 0.01)))
    by_total = advantages(list(train_groups([four], "rloo")))  # type: ignore[arg-type]
    assert max(by_total) < 0.01
    each = advantages(list(train_groups([four], "rloo", "components")))  # type: ignore[arg-type]
    assert each == pytest.approx([1.0, -1.0, 1.0, -1.0], abs=1e-3)


def test_gated_is_zero_unknown_is_the_mean_and_no_weight_is_nothing() -> None:
    gated = by_component(group(scored(1, 0.4), scored(1, None, status="gated")))
    assert gated[0] < 0 < gated[1]
    unknown = by_component(group(scored(1, 0.4), scored(1, None, status="unknown")))
    assert unknown.tolist() == [0.0, 0.0]


def test_groups_without_any_difference_train_nothing() -> None:
    same = group(scored(1.0, 0.2), scored(1.0, 0.2))
    assert train_groups([same], "rloo", "components") == []
    assert train_groups([same], "rloo") == []


def test_members_whose_advantage_is_zero_come_along_because_averages_count_them() -> None:
    three = group(scored(1.0, 0.0), scored(0.5, 0.0), scored(0.0, 0.0))
    assert advantages(list(train_groups([three], "rloo"))) == [0.75, 0.0, -0.75]  # type: ignore[arg-type]


def lengthened(one: Member, tokens: int) -> Member:
    """`one` with an answer of `tokens` ids."""
    (turn,) = one.trajectory.turns
    completion = replace(turn.completion, tokens=(5,) * tokens, logprobs=(-0.5,) * tokens)
    turns = (replace(turn, completion=completion),)
    return replace(one, trajectory=replace(one.trajectory, turns=turns))


SOFT = LossConfig(overlong="soft", overlong_tokens=10, overlong_buffer=4, overlong_penalty=0.5)


def test_rewards_pay_for_length_before_they_are_compared() -> None:
    pair = group(lengthened(scored(1.0, 0.0), 9), lengthened(scored(0.0, 0.0), 2))
    # 1 - 0.5 x 3/4 against 0.
    assert advantages(list(train_groups([pair], "rloo", "total", SOFT))) == [0.625, -0.625]  # type: ignore[arg-type]
    assert advantages(list(train_groups([pair], "rloo", "total", LossConfig()))) == [1.0, -1.0]  # type: ignore[arg-type]


def test_by_component_length_is_a_component_of_its_own() -> None:
    pair = group(lengthened(scored(1.0, 0.2), 9), lengthened(scored(1.0, 0.2), 2))
    found = by_component(pair, SOFT)
    # Two values have a std of |difference| / sqrt(2): weight x -1 / sqrt(2).
    assert found.tolist() == pytest.approx([-0.5 / 2**0.5, 0.5 / 2**0.5], abs=1e-4)
    assert by_component(pair).tolist() == [0.0, 0.0]
