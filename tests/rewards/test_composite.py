"""Totals from scores, worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from patchgym.rewards import (
    Component,
    Measurement,
    Part,
    RewardConfig,
    Scene,
    Score,
    Verdict,
    compose,
    total_of,
)
from patchgym.rewards.base import ScoreStatus
from patchgym.rewards.composite import is_open

FAILED = Verdict(status="unresolved", evidence="report")
UNKNOWN = Verdict(status="unknown", evidence="infra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Earns(Component):
    """Never measured here."""

    def measure(self, scene: Scene) -> Measurement:
        raise AssertionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs(Earns):
    """Likewise."""

    penalty: ClassVar[bool] = True


def part(name: str, weight: float, *, penalty: bool = False, required: bool = False) -> Part:
    component = Costs() if penalty else Earns()
    return Part(name=name, component=component, source="x:X", weight=weight, required=required)


TESTS = part("tests", 1.0, required=True)
SIZE = part("size", 0.2, penalty=True)
STYLE = part("style", 0.5)


def config(*parts: Part, clip: tuple[float, float] | None = None) -> RewardConfig:
    return RewardConfig(parts=parts, clip=clip)


def rubric(*parts: Part) -> RewardConfig:
    return RewardConfig(parts=parts, combine="rubric")


def score(name: str, value: float | None, status: ScoreStatus = "measured") -> Score:
    return Score(name=name, value=value, weight=1.0, status=status)


def unknown(name: str) -> Score:
    return score(name, None, "unknown")


def gated(name: str) -> Score:
    return score(name, None, "gated")


def test_a_sum_adds_what_earns_and_takes_penalties_off() -> None:
    scores = [score("tests", 0.5), score("size", 0.25), score("style", 1.0)]
    assert total_of(config(TESTS, SIZE, STYLE), scores) == pytest.approx(0.5 - 0.05 + 0.5)


def test_weights_are_the_configurations_and_not_the_scores() -> None:
    kept = Score(name="tests", value=1.0, weight=77.0)
    assert total_of(config(TESTS), [kept]) == 1.0


def test_gated_and_unknown_scores_count_nothing() -> None:
    assert total_of(config(TESTS, SIZE), [score("tests", 0.0), gated("size")]) == 0.0
    assert total_of(config(TESTS, SIZE), [score("tests", 1.0), unknown("size")]) == 1.0


def test_without_what_is_required_nothing_is_known() -> None:
    assert total_of(config(TESTS, STYLE), [unknown("tests"), score("style", 1.0)]) is None
    assert total_of(config(TESTS, STYLE), [score("style", 1.0)]) is None
    assert total_of(config(TESTS, STYLE), [gated("tests"), score("style", 1.0)]) == 0.5


def test_a_clip_bounds_the_total() -> None:
    parts = (TESTS, part("size", 3.0, penalty=True))
    scores = [score("tests", 1.0), score("size", 1.0)]
    assert total_of(config(*parts, clip=(-1.0, 1.0)), scores) == -1.0
    assert total_of(config(*parts, clip=(-9.0, 1.0)), scores) == -2.0
    assert total_of(config(*parts, clip=(-1.0, 0.5)), [score("tests", 1.0)]) == 0.5


def test_a_rubric_ends_at_the_first_that_is_not_full() -> None:
    made = rubric(TESTS, SIZE, STYLE)
    full = [score("tests", 1.0), score("size", 0.0), score("style", 0.5)]
    assert total_of(made, full) == pytest.approx(1.0 + 0.2 + 0.25)
    assert total_of(made, [score("tests", 0.5), *full[1:]]) == 0.5
    large = [score("tests", 1.0), score("size", 0.25), score("style", 1.0)]
    assert total_of(made, large) == pytest.approx(1.0 + 0.2 * 0.75)


def test_a_rubric_passes_over_what_is_unknown_and_ends_at_what_is_gated() -> None:
    made = rubric(TESTS, SIZE, STYLE)
    last = score("style", 1.0)
    assert total_of(made, [score("tests", 1.0), unknown("size"), last]) == 1.5
    assert total_of(made, [score("tests", 1.0), gated("size"), last]) == 1.0
    assert total_of(made, [unknown("tests"), score("size", 0.0), last]) is None


def test_an_unknown_verdict_decides_nothing_by_itself() -> None:
    optional = config(part("tests", 1.0), STYLE)
    scores = [unknown("tests"), score("style", 1.0)]
    assert compose(optional, scores, UNKNOWN).total == 0.5
    assert compose(config(TESTS, STYLE), scores, UNKNOWN).total is None
    assert compose(config(TESTS), (), UNKNOWN).total is None


def test_a_reward_keeps_what_it_was_made_of() -> None:
    scores = [score("tests", 0.0)]
    reward = compose(config(TESTS), scores, FAILED, seconds=2.5, shared=True)
    assert (reward.total, reward.scores, reward.verdict) == (0.0, tuple(scores), FAILED)
    assert (reward.seconds, reward.shared, reward.resolved) == (2.5, True, False)
    assert reward.score("tests") is scores[0]
    assert reward.score("nothing") is None


def test_a_gate_is_open_above_its_bound() -> None:
    behind = Part(name="x", component=Earns(), source="x:X", weight=1, gate="t", gate_above=0.5)
    assert is_open(behind, score("t", 0.6))
    assert not is_open(behind, score("t", 0.5))
    assert not is_open(behind, gated("t"))
    assert not is_open(behind, unknown("t"))
    assert not is_open(behind, None)
    assert is_open(TESTS, None)
