"""The ledger on a real disk: what is flushed is there, readers disturb nobody, errors are told."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from group_builders import book, member, take
from patchgym.agent import Observation, ToolCall
from patchgym.rewards import Reward, Score, Verdict
from patchgym.trainer.errors import RunError
from patchgym.trainer.ledger import IllegalChange, Ledger, LedgerReader, RestoredGroup

pytestmark = pytest.mark.anyio


async def test_what_is_flushed_is_read_by_another_connection(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        ledger.group("g1", "t1", 1, "pending")
        ledger.group("g1", "t1", 1, "ready", members=["a", "b"])
        ledger.step(0, {"reward": 0.5})
        ledger.meta("state", "running")
        await ledger.flush()
        with LedgerReader(path) as reader:
            assert reader.steps() == [{"step": 0, "reward": 0.5}]
            assert reader.meta("state") == "running"
            assert reader.rows("SELECT members FROM groups")[0]["members"] == '["a", "b"]'
            ledger.meta("state", "finished")
            await ledger.flush()
            assert reader.meta("state") == "finished"


async def test_closing_writes_what_is_queued(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        for step in range(500):
            ledger.step(step, {})
    with LedgerReader(path) as reader:
        assert len(reader.steps()) == 500
    statistics = ledger.statistics()
    assert (statistics.transactions, statistics.waiting) == (500, 0)
    assert statistics.batches < 500, "what is queued is written together"


async def test_a_rollout_is_on_record_with_its_turns_and_scores(tmp_path: Path) -> None:
    from dataclasses import replace

    item = take(book(), 1)
    acted = member(item, 0.5, version=3).trajectory
    turn = replace(
        acted.turns[0],
        calls=(ToolCall(name="edit"), ToolCall(name="run_tests")),
        observations=(
            Observation(kind="output", text="", done=False),
            Observation(kind="tests", text="", done=True),
        ),
        sample_seconds=1.5,
        tool_seconds=0.25,
    )
    later = replace(turn, completion=replace(turn.completion, policy_version=4), context=(9,))
    trajectory = replace(acted, turns=(turn, later), seconds=4.0)
    reward = Reward(
        total=0.5,
        scores=(
            Score(name="tests", value=0.5, weight=1.0, seconds=2.0, version="1"),
            Score(name="lint", value=None, weight=0.1, status="unknown", detail="no tool"),
        ),
        verdict=Verdict(status="unresolved", evidence="report"),
        seconds=2.5,
    )
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        for _ in range(2):  # the second in place of the first
            ledger.rollout("train", item.group_id, item.task.id, 0, trajectory, reward)
    with LedgerReader(path) as reader:
        (row,) = reader.newest()
        known = {key: row[key] for key in ("turns", "policy_version", "newest_version", "evidence")}
        assert known == {
            "turns": 2, "policy_version": 3, "newest_version": 4, "evidence": "report"
        }  # fmt: skip
        assert (row["sampled_tokens"], row["context_tokens"]) == (2, 3)
        assert (row["sample_seconds"], row["tool_seconds"]) == (3.0, 0.5)
        assert (row["seconds"], row["reward_seconds"]) == (4.0, 2.5)
        turns = [tuple(each)[1:] for each in reader.turns(trajectory.rollout_id)]
        assert turns == [
            (0, 3, 2, 1, "eos", "edit run_tests", "output tests", 1.5, 0.25),
            (1, 4, 1, 1, "eos", "edit run_tests", "output tests", 1.5, 0.25),
        ]
        scores = [tuple(each)[1:] for each in reader.scores(trajectory.rollout_id)]
        assert scores == [
            ("lint", None, 0.1, "unknown", 0.0, "no tool", ""),
            ("tests", 0.5, 1.0, "measured", 2.0, "", "1"),
        ]


async def test_words_that_are_no_text_are_on_record_by_their_escapes(tmp_path: Path) -> None:
    from dataclasses import replace

    item = take(book(), 1)
    trajectory = replace(member(item, 0.5).trajectory, error="half \udc80", stop_reason="deadline")
    reward = Reward(
        total=None,
        scores=(Score(name="lint", value=None, weight=0.1, status="unknown", detail="\ud800!"),),
        verdict=Verdict(status="unknown", evidence="infra", detail="a\udfffb"),
    )
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        ledger.rollout("train", item.group_id, item.task.id, 0, trajectory, reward)
    with LedgerReader(path) as reader:
        (row,) = reader.rows("SELECT error, detail FROM rollouts")
        (score,) = reader.rows("SELECT detail FROM scores")
    assert (row["error"], row["detail"]) == ("half \\udc80", "a\\udfffb")
    assert score["detail"] == "\\ud800!"


async def test_a_group_keeps_what_it_was_told_and_when_it_came_to_each_state(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        ledger.group("g1", "t1", 7, "pending")
        ledger.group("g1", "t1", 7, "ready", members=["a", "b"], version=3)
        ledger.group("g1", "t1", 7, "taken", step=4)
        ledger.group("g1", "t1", 7, "committed", step=4)
        assert ledger.state("g1") == "committed"
        assert ledger.state("g2") is None
    with LedgerReader(path) as reader:
        found = reader.group("g1")
        assert found is not None
        row, rollouts = found
        assert rollouts == [] and reader.group("g2") is None
        known = (row["state"], row["step"], row["version"], row["revision"])
        assert known == ("committed", 4, 3, 3)
        assert json.loads(row["members"]) == ["a", "b"]
        assert row["opened"] <= row["whole"] <= row["taken"] <= row["changed"]


async def test_tasks_count_visits_and_groups_that_came_to_nothing_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:

        def end(number: int, *states: tuple[str, str]) -> None:
            ledger.group(f"g{number}", "t", number, "pending")
            for state, reason in states:
                ledger.group(f"g{number}", "t", number, state, reason=reason)  # type: ignore[arg-type]

        async def known() -> tuple[int, int]:
            await ledger.flush()
            with LedgerReader(path) as reader:
                (row,) = reader.rows("SELECT * FROM tasks")
                return row["visits"], row["failures"]

        end(0, ("dropped", "too_few"))
        end(1, ("dropped", "stale"))
        assert await known() == (2, 2)
        end(2, ("dropped", "no_spread"))  # its rollouts came back
        assert await known() == (3, 0)
        end(3, ("dropped", "stale"))
        end(4, ("ready", ""), ("dropped", "stale"))  # stale in the queue: no fault of the task
        assert await known() == (5, 0)
        ledger.group("g5", "t", 5, "pending")
        ledger.group("g5", "t", 5, "pending")  # opened again by a resumed run
        assert await known() == (6, 0)
        ledger.quarantine("t", "3 groups in a row came to nothing")
        await ledger.flush()
    with LedgerReader(path) as reader:
        (row,) = reader.rows("SELECT * FROM tasks")
        assert (row["quarantined"], row["reason"]) == (1, "3 groups in a row came to nothing")


async def test_a_transaction_is_recorded_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        ledger.group("g1", "t", 1, "pending")
        with pytest.raises(IllegalChange), ledger.transaction():
            ledger.event("one")
            ledger.group("g1", "t", 1, "ready")
            ledger.group("g2", "t", 2, "pending")
            ledger.group("g1", "t", 1, "committed")
        assert (ledger.state("g1"), ledger.state("g2")) == ("pending", None)
        with ledger.transaction():
            ledger.group("g1", "t", 1, "ready")
            with ledger.transaction():
                ledger.event("two")
        assert ledger.statistics().transactions + ledger.statistics().waiting == 2
    with LedgerReader(path) as reader:
        assert [row["kind"] for row in reader.rows("SELECT kind FROM events")] == ["two"]
        assert [row["state"] for row in reader.rows("SELECT state FROM groups")] == ["ready"]


async def test_a_restore_takes_back_what_the_checkpoint_has_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        for number in range(4):
            ledger.group(f"g{number}", "t", number, "pending")
        for number in range(3):
            ledger.group(f"g{number}", "t", number, "ready", members=["a"], version=0)
            ledger.group(f"g{number}", "t", number, "taken", step=number)
            ledger.group(f"g{number}", "t", number, "committed", step=number)
            ledger.step(number, {})
    async with Ledger(path) as ledger:
        again = RestoredGroup(group_id="g1", task_id="t", number=1, members=("a",), version=0)
        ledger.restore(1, ready=[again], reopen=[2, 3])
        states = [ledger.state(f"g{number}") for number in range(4)]
        assert states == ["committed", "ready", "pending", "pending"]
    with LedgerReader(path) as reader:
        rows = reader.rows("SELECT state, step, members FROM groups ORDER BY number")
        assert [tuple(row) for row in rows] == [
            ("committed", 0, '["a"]'),
            ("ready", None, '["a"]'),
            ("pending", None, "[]"),
            ("pending", None, "[]"),
        ]
        assert [row["step"] for row in reader.steps()] == [0]
        (event,) = reader.rows("SELECT detail FROM events WHERE kind = 'restored'")
        assert json.loads(event["detail"]) == {"step": 1, "known": 3, "ready": 1, "reopen": 2}


async def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "run.sqlite"
    with pytest.raises(RunError, match=r"missing/run\.sqlite: can't be written: .*missing is gone"):
        async with Ledger(path):
            pass


async def test_a_failing_write_reaches_whoever_waits_and_whoever_closes(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with pytest.raises(RunError, match="no such table: nowhere; that is patchgym's fault"):
        async with Ledger(path) as ledger:
            ledger.meta("before", 1)
            await ledger.flush()
            ledger.record("INSERT INTO nowhere VALUES (1)")
            with pytest.raises(RunError, match="no such table"):
                await ledger.flush()
            with pytest.raises(RunError, match="no such table"):
                await ledger.room()
            ledger.meta("after", 1)
    with LedgerReader(path) as reader:
        assert (reader.meta("before"), reader.meta("after")) == (1, None)


async def test_an_error_of_the_block_is_not_hidden_by_the_ledgers_own(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with Ledger(tmp_path / "run.sqlite") as ledger:
            ledger.record("INSERT INTO nowhere VALUES (1)")
            raise KeyError


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"not a database, but long enough to look like one" * 10)
    with pytest.raises(RunError, match="not a run's ledger"):
        LedgerReader(path)
    empty = tmp_path / "empty.sqlite"
    sqlite3.connect(empty).close()
    with pytest.raises(RunError, match="not a run's ledger: there is nothing in it"):
        LedgerReader(empty)
    with pytest.raises(RunError, match="no such file"):
        LedgerReader(tmp_path / "gone.sqlite")
