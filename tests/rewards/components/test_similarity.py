"""How much a change is like gold."""

from __future__ import annotations

import pytest
from changes import NO_CHANGE, change, scene

from patchgym.rewards.component import UnknownValue
from patchgym.rewards.components.similarity import Similarity
from patchgym.rewards.scene import Change

BASE = {"shop.py": "def price(item):\n    return item.cost\n", "till.py": "open = 1\n"}
GOLD = change(BASE, {**BASE, "shop.py": "def price(item):\n    return item.cost * item.count\n"})


def value(made: Change, gold: Change = GOLD) -> float:
    return Similarity().measure(scene(made, gold)).value


def test_gold_itself_is_all_alike_also_with_other_blanks() -> None:
    assert value(GOLD) == 1
    spaced = {**BASE, "shop.py": "def price(item):\n    return  item.cost  *  item.count\n"}
    assert value(change(BASE, spaced)) == 1


def test_nothing_and_another_file_are_not_alike() -> None:
    assert value(NO_CHANGE) == 0
    assert value(change(BASE, {**BASE, "till.py": "shut = 2\n"})) == 0


def test_a_close_line_is_more_alike_than_a_far_one() -> None:
    close = {**BASE, "shop.py": "def price(item):\n    return item.count * item.cost\n"}
    far = {**BASE, "shop.py": "def price(item):\n    raise ValueError\n"}
    assert 1 > value(change(BASE, close)) > value(change(BASE, far)) > 0


def test_it_does_not_matter_which_of_two_is_gold() -> None:
    other = change(BASE, {**BASE, "shop.py": "def price(item):\n    pass\n", "till.py": ""})
    assert value(other, GOLD) == pytest.approx(value(GOLD, other))


def test_what_is_added_is_not_like_what_is_removed() -> None:
    before, after = {"a.py": "x = 1\n"}, {"a.py": "y = 2\n"}
    assert value(change(before, after), change(after, before)) == 0


def test_binary_files_are_alike_when_they_are_the_same() -> None:
    one, other = change({}, {"a.png": b"\0one"}), change({}, {"a.png": b"\0other"})
    assert value(one, one) == 1
    assert value(one, other) == 0


def test_without_gold_or_without_a_diff_that_applies_nothing_is_known() -> None:
    with pytest.raises(UnknownValue, match="no gold patch"):
        value(GOLD, NO_CHANGE)
    with pytest.raises(UnknownValue, match="corrupt patch"):
        value(Change(tree="x", problem="corrupt patch"))


def test_partly_must_be_a_share() -> None:
    with pytest.raises(ValueError, match="partly is 2"):
        Similarity(partly=2)
