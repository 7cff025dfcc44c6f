"""Ledgers of other versions: an older one is read as it is and written as a new one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from old_ledgers import first_version

from patchgym.trainer.errors import RunError
from patchgym.trainer.ledger import SCHEMA_VERSION, Ledger, LedgerReader, backup_path

ROWS = """
INSERT INTO meta VALUES ('state', '"stopped"');
INSERT INTO rollouts VALUES
    ('g00000-m0', 'train', 'g00000', 't', 0, 'submitted', '', 1.0, 'resolved', 2, 30, 0, 4.5, '',
     9.0);
INSERT INTO groups VALUES
    ('g00000', 't', 0, 'committed', '', 0, '["g00000-m0"]', 10.0),
    ('g00001', 't', 1, 'taken', '', 1, '["g00001-m0"]', 11.0),
    ('g00002', 'u', 2, 'pending', '', NULL, '[]', 12.0);
INSERT INTO steps VALUES (0, '{"reward": 0.5}');
"""


def version_on_disk(path: Path) -> int:
    """As SQLite has it."""
    connection = sqlite3.connect(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        return int(version)
    finally:
        connection.close()


def tables_of(reader: LedgerReader) -> list[str]:
    """Names of the file's tables."""
    rows = reader.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [row["name"] for row in rows]


def columns_of(reader: LedgerReader, table: str) -> list[str]:
    """Names of a table's columns, in order."""
    return [row["name"] for row in reader.rows(f"PRAGMA table_info({table})")]


def check_content(reader: LedgerReader) -> None:
    """What version 1 knew is there, and what it did not is NULL."""
    (rollout,) = reader.newest()
    assert (rollout["id"], rollout["seconds"], rollout["tool_seconds"]) == ("g00000-m0", 4.5, None)
    found = reader.group("g00001")
    assert found is not None
    assert (found[0]["state"], found[0]["revision"], found[0]["whole"]) == ("taken", 0, None)
    assert reader.steps() == [{"step": 0, "reward": 0.5}]
    tasks = {row["id"]: row["visits"] for row in reader.rows("SELECT * FROM tasks")}
    assert tasks == {"t": 2, "u": 1}
    assert reader.turns("g00000-m0") == reader.scores("g00000-m0") == []


def test_a_reader_reads_the_first_version_and_leaves_it_so(tmp_path: Path) -> None:
    path = first_version(tmp_path / "run.sqlite", ROWS)
    before = path.read_bytes()
    with LedgerReader(path) as reader:
        assert reader.version == 1
        check_content(reader)
    assert path.read_bytes() == before


async def test_a_writer_brings_the_first_version_up_to_date_and_keeps_a_copy(
    tmp_path: Path,
) -> None:
    path = first_version(tmp_path / "run.sqlite", ROWS)
    async with Ledger(path) as ledger:
        assert ledger.state("g00001") == "taken"
        ledger.group("g00001", "t", 1, "ready")
        ledger.group("g00001", "t", 1, "taken", step=1)
        ledger.group("g00001", "t", 1, "ready")
        ledger.group("g00001", "t", 1, "taken", step=1)
        await ledger.flush()
    assert version_on_disk(path) == SCHEMA_VERSION == 2
    with LedgerReader(path) as reader:
        found = reader.group("g00001")
        assert found is not None and found[0]["revision"] == 4
    with LedgerReader(backup_path(path)) as reader:
        assert reader.version == 1
        check_content(reader)


async def test_a_new_ledger_has_the_tables_of_one_that_was_brought_up_to_date(
    tmp_path: Path,
) -> None:
    paths = [first_version(tmp_path / "old.sqlite", ROWS), tmp_path / "new.sqlite"]
    columns: list[dict[str, list[str]]] = []
    for path in paths:
        async with Ledger(path):
            pass
        with LedgerReader(path) as reader:
            columns.append({name: columns_of(reader, name) for name in tables_of(reader)})
    assert columns[0] == columns[1]
    assert {"tasks", "rollouts", "turns", "scores", "groups", "steps", "events"} <= set(columns[1])


async def test_a_newer_version_is_refused_with_both_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = path.read_bytes()
    words = "a ledger of version 3, and this patchgym knows versions up to 2: update patchgym"
    with pytest.raises(RunError, match=words):
        LedgerReader(path)
    with pytest.raises(RunError, match=words):
        async with Ledger(path):
            pass
    assert path.read_bytes() == before
