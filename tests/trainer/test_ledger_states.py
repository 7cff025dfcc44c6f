"""Which state of a group may follow which: all pairs, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from patchgym.trainer.ledger import GroupState, IllegalChange, Ledger

STATES: tuple[GroupState, ...] = get_args(GroupState)
# To reach each state from nothing.
WAY: dict[GroupState, tuple[GroupState, ...]] = {
    "pending": ("pending",),
    "ready": ("pending", "ready"),
    "taken": ("pending", "ready", "taken"),
    "committed": ("pending", "ready", "taken", "committed"),
    "dropped": ("pending", "dropped"),
}
ALLOWED = {
    ("pending", "pending"), ("pending", "ready"), ("pending", "dropped"),
    ("ready", "taken"), ("ready", "dropped"),
    ("taken", "committed"), ("taken", "ready"), ("taken", "dropped"),
}  # fmt: skip


@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
async def test_a_group_goes_only_where_it_may(
    tmp_path: Path, before: GroupState, after: GroupState
) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        for state in WAY[before]:
            ledger.group("g1", "t", 1, state)
        if (before, after) in ALLOWED:
            ledger.group("g1", "t", 1, after)
            assert ledger.state("g1") == after
        else:
            with pytest.raises(IllegalChange, match=f"g1 is {before} and can't become {after}"):
                ledger.group("g1", "t", 1, after)
            assert ledger.state("g1") == before


@pytest.mark.parametrize("state", [state for state in STATES if state != "pending"])
async def test_a_group_begins_as_pending(tmp_path: Path, state: GroupState) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        with pytest.raises(IllegalChange, match=f"g1 was never opened and can't become {state}"):
            ledger.group("g1", "t", 1, state)


async def test_states_are_known_again_when_a_ledger_is_opened_again(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        ledger.group("g1", "t", 1, "pending")
        ledger.group("g1", "t", 1, "dropped", reason="no_spread")
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        with pytest.raises(IllegalChange, match="what may follow is nothing"):
            ledger.group("g1", "t", 1, "ready")
