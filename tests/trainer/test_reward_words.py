"""A reward in words: what it is made of, what it costs, and what makes no sense in it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from patchgym.rewards import Reward, RewardConfig, Score, Verdict, compose
from patchgym.trainer.reward_words import costs, headline, reward_lines, reward_table, warnings
from patchgym.trainer.score_table import plain, score_table, sum_of

RESOLVED = Verdict(status="resolved", evidence="report")


def test_each_component_has_a_line_with_its_sign_gate_and_options() -> None:
    config = RewardConfig.of({
        "turns": {"weight": 0.2, "free": 5, "gate": "tests", "gate_above": 0.5},
        "similarity": 0.0,
    })  # fmt: skip
    lines = reward_lines(config)
    assert lines[0] == "reward: a weighted sum, from -0.25 at least to 1 at most"
    (turns,) = [line for line in lines if line.startswith("  turns")]
    assert turns.split() == "turns -0.2 where tests > 0.5 the diff, conduct 120 s free = 5".split()
    (similarity,) = [line for line in lines if line.startswith("  similarity")]
    assert "never: only measured" in similarity
    console = Console(file=io.StringIO(), width=80)
    console.print(reward_table(config))
    assert isinstance(console.file, io.StringIO)
    assert "free = 5" in console.file.getvalue()


def test_the_default_reward_has_no_warning_and_costs_one_sandbox() -> None:
    config = RewardConfig.of()
    assert warnings(config) == []
    assert costs(config) == ["tests: a sandbox with the task's image for every patch"]


def test_linters_are_named_with_what_they_cost() -> None:
    (line,) = [line for line in costs(RewardConfig.of({"lint": 0.1})) if "linters" in line]
    assert line.startswith("lint: a sandbox with linters (ruff")


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ({"tests": 0.0, "similarity": 1.0}, "tests has no weight"),
        ({"patch_size": 1.0}, "penalties add up to 1 and everything else to 1"),
        ({"turns": {"weight": 0.1, "gate": ""}}, "turns counts where nothing is solved too"),
        ({"turns": {"weight": 0.1, "gate": "regressions"}, "regressions": 0.1}, "a penalty"),
        ({"clip": [0.0, 0.5]}, "clip ends at 0.5 and solving earns 1"),
        ({"clip": [2.0, 3.0]}, "clip makes all totals equal"),
        ({"combine": "rubric", "lint": 0.1, "tests": 1.0}, "comes to tests after lint"),
        ({"combine": "rubric", "tests": 0.5, "lint": 0.0}, "ends at it where it is not full"),
        ({"lint": {"weight": 0.0, "required": True}}, "lint has no weight and is required"),
        ({"patch_size": 0.0, "normalize": "components"}, "the same as 'total'"),
    ],
)
def test_what_makes_no_sense_is_said(section: dict[str, Any], part: str) -> None:
    assert part in "\n".join(warnings(RewardConfig.of(section)))


def test_harm_may_count_where_nothing_is_solved() -> None:
    assert warnings(RewardConfig.of({"regressions": 0.2, "tampering": 0.5})) == []


def score(name: str, value: float | None, weight: float, status: Any = "measured") -> Score:
    return Score(name=name, value=value, weight=weight, status=status)


def test_a_sum_is_told_with_its_clip() -> None:
    config = RewardConfig.of({"regressions": 0.6, "clip": [0.5, 1.0]})
    scores = (score("regressions", 1.0, -0.6), score("tests", 1.0, 1.0),
              score("patch_size", 0.0, -0.05))  # fmt: skip
    reward = compose(config, scores, RESOLVED)
    assert sum_of(config, reward) == (
        "sum: regressions -0.600, tests +1.000, patch_size 0.000 = 0.400, clipped to 0.5 to 1 "
        "= 0.500"
    )


def test_a_rubric_is_told_up_to_where_it_ends() -> None:
    config = RewardConfig.of({"combine": "rubric", "tests": 0.7, "patch_size": 0.2, "turns": 0.1})
    scores = (score("tests", 1.0, 0.7), score("patch_size", 0.5, -0.2), score("turns", 0.0, -0.1))
    reward = compose(config, scores, RESOLVED)
    assert sum_of(config, reward) == (
        "rubric: tests +0.700 of 0.7, patch_size +0.100 of 0.2, and it ends there = 0.800"
    )
    assert headline(config).endswith("from 0 at least to 1 at most")


def test_an_unknown_total_names_the_component() -> None:
    config = RewardConfig.of()
    reward = compose(config, (score("tests", None, 1.0, "unknown"),), RESOLVED)
    assert sum_of(config, reward) == (
        "the total is unknown: tests is required, and could not be measured"
    )


def test_text_of_others_does_nothing_to_a_terminal() -> None:
    hostile = "a\x1b[31mred\x07\ttab\u202ertl\udcff"
    assert plain(hostile) == "a·[31mred·  tab·rtl·"
    console = Console(file=io.StringIO(), width=60)
    row = Score(name=hostile, value=None, weight=1.0, status="unknown", detail=hostile)
    console.print(score_table(Reward(total=None, scores=(row,), verdict=RESOLVED)))
    assert isinstance(console.file, io.StringIO)
    assert "\x1b" not in console.file.getvalue()
