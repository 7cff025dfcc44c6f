"""The size of a change, against gold and alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from changes import NO_CHANGE, change, scene

from patchgym.rewards.component import UnknownValue
from patchgym.rewards.components.patch_size import PatchSize
from patchgym.rewards.scene import Change

BASE = {"shop.py": "price = 1\n"}
GOLD = change(BASE, {"shop.py": "price = 2\n"})


def lines(count: int) -> str:
    return "price = 2\n" + "".join(f"x{n} = {n}\n" for n in range(count))


def value(made: Change, gold: Change = GOLD, **options: float) -> float:
    return PatchSize(**options).measure(scene(made, gold)).value


def test_gold_itself_and_less_than_gold_cost_nothing() -> None:
    assert value(GOLD) == 0
    assert value(GOLD, change(BASE, {"shop.py": lines(40)})) == 0
    assert value(NO_CHANGE) == 0


def test_the_excess_over_gold_and_slack_costs() -> None:
    made = change(BASE, {"shop.py": lines(14)})
    assert value(made, slack=4) == pytest.approx(1 - math.exp(-1))
    assert value(made, slack=0) == pytest.approx(1 - math.exp(-1.4))


def test_every_further_line_costs_more_and_a_few_are_free() -> None:
    values = [value(change(BASE, {"shop.py": lines(count)})) for count in range(0, 60, 3)]
    assert values[:2] == [0, 0]
    assert values == sorted(values)
    assert len(set(values[1:])) == len(values[1:])
    assert values[-1] < 1


def test_past_a_large_gold_the_same_excess_costs_less() -> None:
    large = change(BASE, {"shop.py": lines(200)})
    more = change(BASE, {"shop.py": lines(260)})
    assert 0 < value(more, large) < value(change(BASE, {"shop.py": lines(60)})) / 2


def test_another_file_and_other_hunks_cost_a_little() -> None:
    both = change(BASE, {"shop.py": "price = 2\n", "till.py": "open = True\n"})
    assert value(both) == pytest.approx(1 - math.exp(-0.25))
    assert value(both, file_lines=0, hunk_lines=0) == 0


def test_tests_and_documentation_hardly_count() -> None:
    after = {"shop.py": "price = 2\n", "tests/test_shop.py": lines(20), "CHANGES.md": "- Fixed.\n"}
    assert value(change(BASE, after)) == 0
    assert value(change(BASE, after), aside_lines=1) > 0.5


def test_a_binary_file_counts_a_fixed_number_of_lines() -> None:
    made = change(BASE, {**BASE, "logo.png": b"\0" * 100_000})
    assert value(made, NO_CHANGE, alone=10, alone_scale=40) == pytest.approx(1 - math.exp(-1))


def test_without_gold_many_lines_are_free_and_the_curve_is_wide() -> None:
    assert value(change({}, {"shop.py": lines(30)}), NO_CHANGE) == 0
    assert value(change({}, {"shop.py": lines(119)}), NO_CHANGE) == pytest.approx(1 - math.exp(-1))


def test_the_evidence_has_both_sizes() -> None:
    made = change(BASE, {"shop.py": lines(3)})
    evidence = PatchSize().measure(scene(made, GOLD)).evidence
    assert (evidence["added"], evidence["removed"]) == (4, 1)
    assert (evidence["files"], evidence["hunks"]) == (1, 1)
    gold = evidence["gold"]
    assert isinstance(gold, dict)
    assert gold["added"] == gold["removed"] == 1


def test_a_diff_that_does_not_apply_has_no_size() -> None:
    broken = Change(tree="x", problem="patch does not apply at line 3")
    with pytest.raises(UnknownValue, match="does not apply at line 3"):
        value(broken)
    with pytest.raises(UnknownValue, match="gold patch"):
        value(GOLD, replace(broken))


@pytest.mark.parametrize("option", ["scale", "alone_scale"])
def test_a_scale_must_be_above_zero(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is 0"):
        PatchSize(**{option: 0})


@pytest.mark.parametrize("option", ["slack", "alone", "file_lines", "aside_lines", "binary_lines"])
def test_a_count_must_not_be_negative(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is -1"):
        PatchSize(**{option: -1})
