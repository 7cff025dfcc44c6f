"""Tasks whose groups come to nothing again and again are left out, and no others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from group_builders import TASKS, book, take
from patchgym.trainer.errors import RunError, RunStopped
from patchgym.trainer.ledger import Ledger, LedgerReader, group_name
from patchgym.trainer.quarantine import Quarantine, to_readmit
from patchgym.trainer.resume import Restored, restore_groups
from patchgym.trainer.task_sets import EpochOrder, RevisitOrder, Visit
from patchgym.trainer.trajectory_store import TrajectoryStore

FEW = TASKS[:5]


def test_a_task_is_left_out_after_failures_in_a_row_and_not_before() -> None:
    found = Quarantine(3, "abcd")
    assert [found.note("a", f"g{n}", "too_few") for n in range(2)] == ["", ""]
    found.note("a", "g2")  # whole: the count begins again
    assert [found.note("a", f"g{n}", "too_few") for n in (3, 4)] == ["", ""]
    why = found.note("a", "g5", "too_few")
    assert why == "3 groups in a row came to nothing, the last of them g5: too_few"
    assert found.left_out == {"a": why}
    assert found.note("a", "g6", "too_few") == ""  # said once


def test_a_group_that_was_late_counts_half() -> None:
    for then in ("stale", "too_few"):
        found = Quarantine(2, "abcd")
        assert {found.note("a", f"g{n}", "stale") for n in range(3)} == {""}
        assert found.note("a", "g3", then).startswith("4 groups in a row came to nothing")
    found = Quarantine(2, "abcd")
    found.note("a", "g0", "stale")
    assert found.note("a", "g1", "too_few") == ""
    assert found.note("a", "g2", "too_few").startswith("3 groups in a row came to nothing")


def test_where_most_of_the_others_fail_too_no_task_is_at_fault() -> None:
    found = Quarantine(3, "abcdefgh")
    for number in range(3):
        for task in "abcdef":
            assert found.note(task, f"{task}{number}", "too_few" if task != "f" else "") == ""
    assert found.left_out == {}
    for number in range(32):
        found.note("fgh"[number % 3], "x")
    assert found.note("a", "a3", "too_few") != ""


def test_a_run_ends_when_nothing_comes_of_any_task_that_is_left() -> None:
    found = Quarantine(2, "abc", left_out={"c": "broken"})
    with pytest.raises(RunStopped, match="nothing came of 2 tasks, which are all .* b: 4 groups"):
        for number in range(20):
            assert found.note("ab"[number % 2], f"g{number}", "too_few") == ""
    assert found.left_out == {"c": "broken"}


@pytest.mark.parametrize("late", [0.1, 0.2, 0.3, 0.5, 0.7])
def test_groups_that_are_late_whatever_their_task_leave_nearly_none_out(late: float) -> None:
    out = 0
    for seed in range(5):
        found, chance = Quarantine(3, [str(n) for n in range(40)]), random.Random(seed)
        for number in range(4000):
            found.note(str(number % 40), "g", "stale" if chance.random() < late else "")
        out += len(found.left_out)
    assert out <= 4  # of 5 x 40 tasks, after 100 groups of each


def test_a_task_that_alone_is_always_late_is_left_out() -> None:
    found = Quarantine(3, [str(n) for n in range(40)])
    for number in range(40 * 7):
        found.note(str(number % 40), "g", "stale" if number % 40 == 9 else "")
    assert list(found.left_out) == ["9"]


def test_the_last_task_is_never_left_out() -> None:
    found = Quarantine(2, "ab", left_out={"b": "broken"})
    found.note("a", "g0")
    assert {found.note("a", f"g{n}", "too_few") for n in range(1, 20)} == {""}
    assert found.left_out == {"b": "broken"}


def test_a_run_does_not_begin_with_all_tasks_left_out() -> None:
    with pytest.raises(RunStopped, match="all 2 tasks are left out .*--readmit"):
        Quarantine(3, "ab", left_out={"a": "x", "b": "y", "gone": "z"})
    assert Quarantine(3, "abc", left_out={"a": "x", "gone": "z"}).left_out == {"a": "x"}


def test_with_a_limit_of_0_nothing_is_ever_left_out() -> None:
    found = Quarantine(0, "ab")
    assert {found.note("a", str(n), "too_few") for n in range(50)} == {""}


def test_what_is_to_come_in_again_must_be_out() -> None:
    assert to_readmit("all", {"b": "", "a": ""}) == ("a", "b")
    assert to_readmit("b, a", {"b": "", "a": ""}) == ("b", "a")
    with pytest.raises(RunError, match="--readmit c: it is not left out; left out: a, b"):
        to_readmit("a,c", {"b": "", "a": ""})
    with pytest.raises(RunError, match="left out: none"):
        to_readmit("c", {})


def test_a_task_that_is_left_out_loses_its_turns_and_the_others_keep_theirs() -> None:
    order, turns = RevisitOrder(FEW, 3, 0.5), EpochOrder(FEW, 3)
    out = turns(1).id
    order.learn(out, spread=True)
    order.again(out)
    order.leave_out(out)
    order.learn(out, spread=True)
    order.again(out)
    wanted = [task.id for n in range(20) if (task := turns(n)).id != out]
    assert [order(number).id for number in range(16)] == wanted[:16]
    assert out not in {task.id for task in order.upcoming(9)}
    for task in FEW:  # one is always left
        order.leave_out(task.id)
    assert order(16).id == order(17).id


def test_a_resumed_order_goes_on_past_the_turns_that_were_left_out() -> None:
    order, visits = RevisitOrder(FEW, 3, 0.0), []
    for number in range(12):
        if number == 4:
            order.leave_out(FEW[2].id)
        visits.append(Visit(number=number, task_id=order(number).id, spread=False))
    resumed = RevisitOrder(FEW, 3, 0.0)
    resumed.replay(visits, frozenset({FEW[2].id}))
    resumed.leave_out(FEW[2].id)
    assert [resumed(n).id for n in range(12, 30)] == [order(n).id for n in range(12, 30)]


def test_open_groups_of_a_task_that_is_left_out_are_dropped() -> None:
    owner = book()
    items = [take(owner, 3) for _ in range(6)]
    assert [gone.number for gone in owner.drop_task(items[2].task.id)] == [1]
    assert owner.dropped == {"quarantined": 1}
    assert owner.leftover() == [items[2].rollout_id, items[3].rollout_id]
    assert owner.state().open == 2


@pytest.mark.anyio
async def test_a_resume_keeps_it_out_gives_its_groups_up_and_takes_it_in_again(
    tmp_path: Path,
) -> None:
    path, store = tmp_path / "run.sqlite", TrajectoryStore(tmp_path / "trajectories")

    async def restored(ledger: Ledger) -> Restored:
        await ledger.flush()
        return restore_groups(path, store, 0)

    async with Ledger(path) as ledger:
        for number, task in enumerate("aabc"):
            ledger.group(group_name(number), task, number, "pending")
        ledger.group(group_name(0), "a", 0, "dropped", reason="too_few")
        ledger.quarantine("a", "it never works")
        ledger.event("quarantined", task="a", reason="it never works")
        found = await restored(ledger)
        assert found.left_out == {"a": "it never works"} and found.failures["a"] == 1
        assert found.reopen == (1, 2, 3)
        assert [gone.number for gone in found.given_up()] == [1]
        ledger.restore(0, reopen=found.reopen)
        ledger.group(group_name(1), "a", 1, "dropped", reason="quarantined")
        ledger.readmit("a")
        found = await restored(ledger)
        assert (found.left_out, found.failures["a"]) == ({}, 0)
        assert found.passed_over == {"a"} and found.given_up() == ()
    with LedgerReader(path) as reader:
        assert reader.left_out() == {}
        assert [row["id"] for row in reader.tasks()] == ["a", "b", "c"]
