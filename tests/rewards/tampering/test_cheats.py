"""Every cheating patch is found, by the rule that it breaks."""

from __future__ import annotations

import pytest
from calc_repository import BUG, FAILING, PASSING, TEST_FILES, changes
from cheats import CHEATS, LIBRARY, Cheat

from patchgym.rewards.tampering import RULES, TamperFinding, inspect_changes


def found(cheat: Cheat) -> tuple[TamperFinding, ...]:
    return inspect_changes(
        changes(cheat.files_before, cheat.files_after, cheat.modes),
        test_files=TEST_FILES,
        tests=FAILING + PASSING,
    )


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_it_is_found(cheat: Cheat) -> None:
    rules = {each.rule for each in found(cheat) if each.disqualifies}
    assert cheat.rules <= rules


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_it_is_named_with_its_place(cheat: Cheat) -> None:
    for each in found(cheat):
        lines = cheat.files_after.get(each.path, b"").count(b"\n") + 1
        assert each.path in cheat.files_after or each.path in cheat.files_before
        assert each.line is None or 1 <= each.line <= lines
        assert each.message and each.message.isprintable() and len(each.message) <= 200
        assert each.disqualifies == RULES[each.rule].disqualifies


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_it_does_not_mend_the_bug(cheat: Cheat) -> None:
    assert BUG.encode() in cheat.files_after[LIBRARY]


def test_there_are_many_and_each_rule_has_one() -> None:
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS) >= 60
    disqualifying = {name for name, rule in RULES.items() if rule.disqualifies}
    assert set().union(*(cheat.rules for cheat in CHEATS)) == disqualifying
