"""The one thread that writes a ledger: transactions in, in their order, a batch at a time.

submit (any thread)   never waits                  -> wakes the writer
writer                waits for a transaction      -> unblocked by submit, or by stop
wait (a thread)       waits until all is written   -> unblocked by the writer, or by its failure

All transactions that are queued when the writer comes round are one of SQLite's, so that none is
ever written in part, and what is on disk is always a beginning of what was submitted. A batch that
somebody waits for with `durable` is synced; the others outlive a kill of the process, not a power
cut. The first error ends the writer: nothing is written past it.
"""

from __future__ import annotations

import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchgym.trainer.errors import RunError

from .damage import backup_path, check_whole, stuck, too_new, unwritable
from .files import copy_database
from .schema import SCHEMA_VERSION, bring_up_to_date, version_of
from .states import GroupState

Statement = tuple[str, Sequence[Any]]

_BATCH = 2000  # transactions of one batch, so that whoever waits is answered in time
_LOOK = 0.2  # seconds after which somebody who waits looks whether the writer is still there
_SYNCED = "INSERT OR REPLACE INTO meta VALUES ('synced', ?)"


@dataclass(frozen=True, slots=True)
class _Barrier:
    durable: bool
    reached: threading.Event = field(default_factory=threading.Event)


_Item = tuple[Statement, ...] | _Barrier | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStatistics:
    """A snapshot."""

    waiting: int
    """Transactions that are not written yet."""
    transactions: int
    """Written since the start."""
    batches: int
    seconds: float
    """Wall seconds of writing and syncing, since the start."""
    cpu_seconds: float
    """Of these, the seconds that the writer's thread computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What was in the ledger when it was opened."""

    groups: Sequence[tuple[str, int, GroupState]]
    """Id, number and state of each."""
    steps: int
    """Updates on record: one more than the last step that has a row or a committed group."""


class Writer:
    """Owns the connection; `start` before anything else, and `stop` at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._started = threading.Event()
        self._failure: Exception | None = None
        self._opening = Opening(groups=(), steps=0)
        self._submitted = self._written = self._batches = 0
        self._seconds = self._cpu_seconds = 0.0

    def start(self) -> Opening:
        """Open the file, check it, bring it up to date; RunError when it can't be used. Blocks."""
        self._thread.start()
        self._started.wait()
        self.check()
        return self._opening

    def stop(self, limit: float) -> bool:
        """Write what is queued and close; False when that takes more than `limit` seconds.
        Blocks."""
        self._queue.put(None)
        self._thread.join(limit)
        return not self._thread.is_alive()

    def submit(self, statements: Sequence[Statement]) -> None:
        """Queue one transaction."""
        self._submitted += 1
        self._queue.put(tuple(statements))

    def wait(self, *, durable: bool, limit: float = math.inf) -> None:
        """Return when all that was submitted is written, with `durable` on disk even if the power
        goes; RunError when it can't be, or when the disk took nothing for `limit` seconds.
        Blocks."""
        barrier = _Barrier(durable)
        self._queue.put(barrier)
        batches, since = self._batches, time.monotonic()
        while not barrier.reached.wait(_LOOK):
            self.check()
            if not self._thread.is_alive():
                raise RunError(f"{self.path}: closed already: nothing more can be written to it")
            if batches != self._batches:
                batches, since = self._batches, time.monotonic()
            elif time.monotonic() - since > limit:
                raise stuck(self.path, limit, self.statistics().waiting)
        self.check()

    def check(self) -> None:
        """RunError when the writer met an error."""
        if isinstance(self._failure, RunError):
            raise self._failure
        if self._failure is not None:
            raise unwritable(self.path, self._failure) from self._failure

    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return WriterStatistics(
            waiting=self._submitted - self._written,
            transactions=self._written,
            batches=self._batches,
            seconds=self._seconds,
            cpu_seconds=self._cpu_seconds,
        )

    def _run(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = _open(self.path)
            self._opening = _opening(connection)
            identity = os.stat(self.path).st_ino
            self._started.set()
            while self._write(connection, identity):
                pass
        except Exception as error:  # whatever it is, those who wait are told
            self._failure = error
        finally:
            self._started.set()
            if connection is not None:
                connection.close()

    def _write(self, connection: sqlite3.Connection, identity: int) -> bool:
        """Write what is queued, as one transaction of SQLite's; False when it is closing."""
        items = [self._queue.get()]
        start, computed = time.perf_counter(), time.thread_time()
        while len(items) < _BATCH and items[-1] is not None:
            try:
                items.append(self._queue.get_nowait())
            except queue.Empty:
                break
        barriers = [item for item in items if isinstance(item, _Barrier)]
        durable = items[-1] is None or any(barrier.durable for barrier in barriers)
        # Not to be changed inside a transaction. FULL syncs the log, all that was before included.
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        for item in items:
            if isinstance(item, tuple):
                for statement in item:
                    connection.execute(*statement)
        if durable:  # a commit of nothing would sync nothing
            connection.execute(_SYNCED, (repr(time.time()),))
        connection.execute("COMMIT")
        if durable and os.stat(self.path).st_ino != identity:
            # SQLite would write to a file that was deleted for as long as it is open.
            raise FileNotFoundError("another file lies in its place")
        self._written += sum(isinstance(item, tuple) for item in items)
        self._batches += 1
        self._seconds += time.perf_counter() - start
        self._cpu_seconds += time.thread_time() - computed
        for barrier in barriers:
            barrier.reached.set()
        return items[-1] is not None


def _open(path: Path) -> sqlite3.Connection:
    """A connection to a whole ledger of the newest version."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30.0)
    try:
        check_whole(connection, path)
        version = version_of(connection)
        if version > SCHEMA_VERSION:
            raise too_new(path, version)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise RunError(
                f"{path}: this file system keeps no write-ahead log (SQLite's journal is {mode!r} "
                "here): pick another --run.folder"
            )
        if version < SCHEMA_VERSION:
            if version:
                copy_database(path, backup_path(path))
            bring_up_to_date(connection, version)
    except BaseException:
        connection.close()
        raise
    return connection


def _opening(connection: sqlite3.Connection) -> Opening:
    (steps,) = connection.execute(
        "SELECT MAX(1 + COALESCE((SELECT MAX(step) FROM steps), -1), 1 + COALESCE("
        "(SELECT MAX(step) FROM groups WHERE state = 'committed'), -1))"
    ).fetchone()
    groups = connection.execute("SELECT id, number, state FROM groups").fetchall()
    return Opening(groups=groups, steps=steps)
