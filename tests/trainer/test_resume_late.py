"""What a resumed run knows of tasks that came too late, and of batches that were left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchgym.trainer.ledger import Ledger
from patchgym.trainer.resume import Restored, restore_groups
from patchgym.trainer.trajectory_store import TrajectoryStore

pytestmark = pytest.mark.anyio


def restored(folder: Path) -> Restored:
    return restore_groups(folder / "run.sqlite", TrajectoryStore(folder / "trajectories"), 0)


async def test_a_task_that_came_too_late_comes_first_until_it_is_opened_again(
    tmp_path: Path,
) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        for number, task in enumerate("abcd"):
            ledger.group(f"g{number}", task, number, "pending")
        # One more group of "a" is under way while the first of them is dropped.
        ledger.group("g4", "a", 4, "pending")
        await ledger.flush()
        for number in (2, 0, 1):  # in the order in which they came too late
            ledger.group(f"g{number}", "abcd"[number], number, "dropped", reason="stale")
        ledger.group("g3", "d", 3, "dropped", reason="no_spread")
        await ledger.flush()
        assert restored(tmp_path).late == ("c", "a", "b")
        ledger.group("g5", "c", 5, "pending")
        await ledger.flush()
        assert restored(tmp_path).late == ("a", "b")


async def test_only_batches_that_were_left_out_count_against_the_budget(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        for number in range(5):
            ledger.group(f"g{number}", "t", number, "pending")
        for first in (0, 2):
            names = [f"g{first}", f"g{first + 1}"]
            ledger.event("skipped", step=3, groups=names, reason="the loss is nan")
            for number in (first, first + 1):
                ledger.group(f"g{number}", "t", number, "dropped", reason="not_finite")
        ledger.event("skipped", step=3, groups=["g4"], reason="the loss is nan")  # it stopped here
        await ledger.flush()
    assert restored(tmp_path).skipped == 2


async def test_a_group_whose_rollout_can_not_be_read_runs_again(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        for number in range(2):
            ledger.group(f"g{number}", "t", number, "pending")
        ledger.group("g1", "t", 1, "ready", members=["g1-m0"])
        await ledger.flush()
    found = restored(tmp_path)
    assert (found.ready, found.reopen) == ((), (0, 1))
    (words,) = found.damaged
    assert words.startswith("group g1 is rolled out again: no trajectory g1-m0 in")
