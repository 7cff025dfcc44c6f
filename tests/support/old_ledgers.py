"""A ledger as version 1 of its tables left it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE rollouts (
    id TEXT PRIMARY KEY, purpose TEXT NOT NULL, group_id TEXT NOT NULL, task_id TEXT NOT NULL,
    member INTEGER NOT NULL, stop_reason TEXT NOT NULL, error TEXT NOT NULL, reward REAL,
    verdict TEXT NOT NULL, turns INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, seconds REAL NOT NULL, detail TEXT NOT NULL,
    finished REAL NOT NULL);
CREATE INDEX rollouts_by_group ON rollouts (group_id);
CREATE TABLE groups (
    id TEXT PRIMARY KEY, task_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '', step INTEGER, members TEXT NOT NULL DEFAULT '[]',
    changed REAL NOT NULL);
CREATE TABLE steps (step INTEGER PRIMARY KEY, metrics TEXT NOT NULL);
CREATE TABLE evaluations (
    name TEXT NOT NULL, policy_version INTEGER NOT NULL, task_id TEXT NOT NULL,
    sample INTEGER NOT NULL, resolved INTEGER, rollout_id TEXT NOT NULL,
    PRIMARY KEY (name, task_id, sample));
CREATE TABLE events (time REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
"""


def first_version(path: Path, rows: str) -> Path:
    """A ledger of version 1 with the `rows` that an SQL script inserts."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(TABLES + rows)
    connection.close()
    return path
