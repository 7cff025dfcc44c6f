"""The ledger on a real disk: what is flushed is there, readers disturb nobody, errors are told."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from patchgym.trainer.errors import RunError
from patchgym.trainer.ledger import Ledger, LedgerReader

pytestmark = pytest.mark.anyio


async def test_what_is_flushed_is_read_by_another_connection(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
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


async def test_a_place_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "run.sqlite"
    with pytest.raises(RunError, match=r"missing/run\.sqlite: can't be written"):
        async with Ledger(path):
            pass


async def test_a_failing_write_reaches_the_caller(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        ledger.record("INSERT INTO nowhere VALUES (1)")
        with pytest.raises(RunError, match="no such table"):
            await ledger.flush()


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"not a database, but long enough to look like one" * 10)
    with pytest.raises(RunError, match="not a run's ledger"):
        LedgerReader(path)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with pytest.raises(RunError, match="no such file"):
        LedgerReader(tmp_path / "gone.sqlite")
