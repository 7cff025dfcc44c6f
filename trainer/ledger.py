"""The ledger of a run: what happened to every rollout, group and step, in SQLite.

One writer thread owns the connection. `record` only appends to its queue, so that no caller on
the event loop waits for a disk; `flush` waits until everything recorded so far is committed.
Readers open the file by themselves (WAL: they disturb nobody).
"""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio.to_thread

from .errors import RunError

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rollouts (
    id TEXT PRIMARY KEY, purpose TEXT NOT NULL, group_id TEXT NOT NULL, task_id TEXT NOT NULL,
    member INTEGER NOT NULL, stop_reason TEXT NOT NULL, error TEXT NOT NULL, reward REAL,
    verdict TEXT NOT NULL, turns INTEGER NOT NULL, sampled_tokens INTEGER NOT NULL,
    policy_version INTEGER NOT NULL, seconds REAL NOT NULL, detail TEXT NOT NULL,
    finished REAL NOT NULL);
CREATE INDEX IF NOT EXISTS rollouts_by_group ON rollouts (group_id);
CREATE TABLE IF NOT EXISTS groups (
    id TEXT PRIMARY KEY, task_id TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '', step INTEGER, members TEXT NOT NULL DEFAULT '[]',
    changed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS steps (step INTEGER PRIMARY KEY, metrics TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (
    name TEXT NOT NULL, policy_version INTEGER NOT NULL, task_id TEXT NOT NULL,
    sample INTEGER NOT NULL, resolved INTEGER, rollout_id TEXT NOT NULL,
    PRIMARY KEY (name, task_id, sample));
CREATE TABLE IF NOT EXISTS events (
    time REAL NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL);
"""

_Statement = tuple[str, Sequence[Any]]


class Ledger:
    """The writer's side; an async context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[_Statement | threading.Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="ledger", daemon=True)
        self._failure: Exception | None = None
        self._started = threading.Event()

    async def __aenter__(self) -> Ledger:
        self._thread.start()
        await anyio.to_thread.run_sync(self._started.wait)
        self._check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._queue.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join, 30.0)

    async def flush(self) -> None:
        """Return when all that was recorded so far is on disk; raises what the writer met."""
        done = threading.Event()
        self._queue.put(done)
        while not await anyio.to_thread.run_sync(done.wait, 0.5):
            self._check()
        self._check()

    def record(self, sql: str, values: Sequence[Any] = ()) -> None:
        """Queue one statement."""
        self._queue.put((sql, values))

    def meta(self, key: str, value: object) -> None:
        """Set a named JSON value of the run."""
        self.record("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def event(self, kind: str, **detail: object) -> None:
        """Note that something happened."""
        self.record("INSERT INTO events VALUES (?, ?, ?)", (time.time(), kind, json.dumps(detail)))

    def group(self, group_id: str, task_id: str, number: int, state: str, **more: object) -> None:
        """Set a group's state; `more` may carry reason, step and members (rollout ids)."""
        self.record(
            "INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                group_id,
                task_id,
                number,
                state,
                more.get("reason", ""),
                more.get("step"),
                json.dumps(more.get("members", [])),
                time.time(),
            ),
        )

    def step(self, step: int, metrics: Mapping[str, object]) -> None:
        """Record a finished optimizer step."""
        values = (step, json.dumps(metrics))
        self.record("INSERT OR REPLACE INTO steps VALUES (?, ?)", values)

    def _check(self) -> None:
        if self._failure is not None:
            raise RunError(
                f"{self.path}: can't be written: {self._failure}; free space or pick another "
                "--run.folder, then go on with --resume"
            )

    def _write(self) -> None:
        try:
            connection = sqlite3.connect(self.path, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            self._failure = error
            self._started.set()
            return
        self._started.set()
        try:
            while self._write_batch(connection):
                pass
        except sqlite3.Error as error:
            self._failure = error
        finally:
            connection.close()

    def _write_batch(self, connection: sqlite3.Connection) -> bool:
        """Commit everything that is queued; False when the ledger is closing."""
        item = self._queue.get()
        waiting: list[threading.Event] = []
        connection.execute("BEGIN")
        going = True
        while True:
            if item is None:
                going = False
            elif isinstance(item, threading.Event):
                waiting.append(item)
            else:
                connection.execute(*item)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        connection.execute("COMMIT")
        for event in waiting:
            event.set()
        return going


class LedgerReader:
    """The reader's side, for reports and for resuming; a context manager."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise RunError(f"{path}: no such file; is {path.parent} a run folder?")
        try:
            self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            self._connection.row_factory = sqlite3.Row
            self.rows("SELECT * FROM meta")
        except sqlite3.Error as error:
            raise RunError(f"{path}: not a run's ledger: {error}") from None

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """All rows of a query."""
        return self._connection.execute(sql, values).fetchall()

    def meta(self, key: str, default: Any = None) -> Any:
        """A named JSON value of the run."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return json.loads(rows[0]["value"]) if rows else default

    def steps(self) -> list[dict[str, Any]]:
        """Metrics of the finished steps, in order."""
        rows = self.rows("SELECT step, metrics FROM steps ORDER BY step")
        return [{**json.loads(row["metrics"]), "step": row["step"]} for row in rows]
