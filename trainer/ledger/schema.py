"""The tables of a ledger, version 2, and how one of version 1 is read and brought up to date.

tasks        what is known of each task: groups opened, failures in a row, whether it is left out
rollouts     one finished rollout a row; `turns` and `scores` hold its parts
groups       one row a group, with its state and when it came to each (see `states`)
steps        metrics of each optimizer update (JSON)
evaluations  one row a sample of a held-out evaluation
events       what happened besides: alarms, stalls, restores
meta         named JSON values of the run

Times are seconds since the epoch, durations wall seconds. The version stands in SQLite's own
`user_version`; ledgers of version 1 have 0 there.
"""

from __future__ import annotations

import sqlite3

SCHEMA_VERSION = 2

_ROLLOUTS_1 = (
    "id TEXT PRIMARY KEY, purpose TEXT NOT NULL, group_id TEXT NOT NULL, task_id TEXT NOT NULL, "
    "member INTEGER NOT NULL, stop_reason TEXT NOT NULL, error TEXT NOT NULL, reward REAL, "
    "verdict TEXT NOT NULL, turns INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL, "
    "policy_version INTEGER NOT NULL, seconds REAL NOT NULL, detail TEXT NOT NULL, "
    "finished REAL NOT NULL"
)
_GROUPS_1 = (
    "id TEXT PRIMARY KEY, task_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL, "
    "reason TEXT NOT NULL DEFAULT '', step INTEGER, members TEXT NOT NULL DEFAULT '[]', "
    "changed REAL NOT NULL"
)

ADDED: dict[str, tuple[tuple[str, str], ...]] = {
    "rollouts": (
        ("newest_version", "INTEGER"),  # the newest policy version among its turns
        ("context_tokens", "INTEGER"),  # ids that were not sampled: prompt and observations
        ("sample_seconds", "REAL"),
        ("tool_seconds", "REAL"),
        ("reward_seconds", "REAL"),
        ("evidence", "TEXT"),  # what the verdict rests on
        ("tampering", "INTEGER"),  # findings
    ),
    "groups": (
        ("version", "INTEGER"),  # the oldest policy version in it, once it is whole
        ("revision", "INTEGER NOT NULL DEFAULT 0"),  # changes of state so far
        ("opened", "REAL"),
        ("whole", "REAL"),  # when it became ready
        ("taken", "REAL"),
    ),
    "steps": (("finished", "REAL"),),
}
"""Columns that version 2 has and version 1 had not, by table, in their order."""

_NEW_TABLES = {
    "tasks": (
        "id TEXT PRIMARY KEY, visits INTEGER NOT NULL DEFAULT 0, "
        "failures INTEGER NOT NULL DEFAULT 0, quarantined INTEGER NOT NULL DEFAULT 0, "
        "reason TEXT NOT NULL DEFAULT ''"
    ),
    "turns": (
        "rollout_id TEXT NOT NULL, number INTEGER NOT NULL, policy_version INTEGER NOT NULL, "
        "context_tokens INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL, finish TEXT NOT NULL, "
        "tools TEXT NOT NULL, observations TEXT NOT NULL, sample_seconds REAL NOT NULL, "
        "tool_seconds REAL NOT NULL, PRIMARY KEY (rollout_id, number)"
    ),
    "scores": (
        "rollout_id TEXT NOT NULL, component TEXT NOT NULL, value REAL, weight REAL NOT NULL, "
        "status TEXT NOT NULL, seconds REAL NOT NULL, detail TEXT NOT NULL, "
        "version TEXT NOT NULL, PRIMARY KEY (rollout_id, component)"
    ),
}

_OLD_TABLES = {
    "meta": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "rollouts": _ROLLOUTS_1,
    "groups": _GROUPS_1,
    "steps": "step INTEGER PRIMARY KEY, metrics TEXT NOT NULL",
    "evaluations": (
        "name TEXT NOT NULL, policy_version INTEGER NOT NULL, task_id TEXT NOT NULL, "
        "sample INTEGER NOT NULL, resolved INTEGER, rollout_id TEXT NOT NULL, "
        "PRIMARY KEY (name, task_id, sample)"
    ),
    "events": "time REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL",
}

_INDEXES = (
    "rollouts_by_group ON rollouts (group_id)",
    "rollouts_by_time ON rollouts (finished, id)",
    "rollouts_by_outcome ON rollouts (stop_reason)",
    "rollouts_by_seconds ON rollouts (seconds)",
    # All that is summed up by task, so that no rows of 100,000 rollouts are read for it.
    "rollouts_by_task ON rollouts (task_id, purpose, finished, verdict, reward, seconds)",
    "groups_by_number ON groups (number)",
    "groups_by_state ON groups (state, reason)",
    "events_by_kind ON events (kind, time)",
)

_VISITS = "INSERT INTO tasks (id, visits) SELECT task_id, COUNT(*) FROM groups GROUP BY task_id"


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the ledger behind `connection`; 0 when there is nothing in it yet."""
    (stored,) = connection.execute("PRAGMA user_version").fetchone()
    if stored:
        return int(stored)
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    return 1 if known else 0


def bring_up_to_date(connection: sqlite3.Connection, version: int) -> None:
    """Make the tables of a ledger of `version`, 0 to 2, those of version 2; all or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    for table, columns in {**_OLD_TABLES, **_NEW_TABLES}.items():
        keyed = " WITHOUT ROWID" if table in ("turns", "scores") else ""
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns}){keyed}")
    if version < 2:
        for table, added in ADDED.items():
            for name, kind in added:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    for index in _INDEXES:
        connection.execute(f"CREATE INDEX IF NOT EXISTS {index}")
    if version == 1:
        connection.execute(_VISITS)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def read_as_newest(connection: sqlite3.Connection) -> None:
    """Have a ledger of version 1 read like one of version 2, in this connection alone.

    What version 1 did not record is NULL, or not there. Nothing is written to the file: the views
    are temporary, and stand before the tables of the same names.
    """
    for table, added in ADDED.items():
        columns = ", ".join(
            f"{0 if 'DEFAULT 0' in kind else 'NULL'} AS {name}" for name, kind in added
        )
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {columns} FROM main.{table}")
    for table, columns in _NEW_TABLES.items():
        connection.execute(f"CREATE TEMP TABLE {table} ({columns})")
    connection.execute(_VISITS)
