"""Verdicts, lint reports and scores on disk, so that no run takes them twice.

    FOLDER/scores.sqlite     one table, in WAL mode; any number of processes at once

It is a cache: an entry that is damaged is taken again, a file that is damaged is set aside, and
one that can't be written is done without. What happens is told in a warning, once, never raised.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from patchgym.datasets.task import Task

from .plain import digest, plain

if TYPE_CHECKING:
    from pydantic import TypeAdapter

LIMIT = 256 << 20  # bytes
ENTRY_SHARE = 16  # no entry is larger than this part of the limit
BUSY_SECONDS = 2.0  # to wait for another process's write
FRESH_SECONDS = 60.0  # a use so soon after the last one need not be noted
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY, used REAL NOT NULL, digest BLOB NOT NULL, value BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_use ON entries (used);
"""
# What nothing that is kept depends on: a repository is named by base_commit.
_BESIDE = ("id", "files", "repository", "split", "provenance", "difficulty")
T = TypeVar("T")
_adapters: dict[type, TypeAdapter[Any]] = {}
_log = logging.getLogger(__name__)


def store_key(kind: str, task: str, tree: str, *depends: object) -> str:
    """Names what was made of a patch: the kind with its version, the `task_digest`, the tree that
    the patch makes, and whatever else it `depends` on, of any type that `plain.digest` takes."""
    return digest([kind, task, tree, depends])


def task_digest(task: Task) -> str:
    """Names all of a task that a verdict, or a component, may depend on."""
    parts = {item.name: getattr(task, item.name) for item in fields(task)}
    return digest({name: value for name, value in parts.items() if name not in _BESIDE})


class ScoreStore:
    """Values by key in a folder, `limit` bytes at most: those that nobody used for longest go.

    A value is a dataclass, read back by pydantic. Every method may be called from any task.
    """

    def __init__(self, folder: Path, *, limit: int = LIMIT) -> None:
        self.path = folder / "scores.sqlite"
        self._limit = limit
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._file = 0
        self._told: set[str] = set()
        self._closed = False

    async def get(self, key: str, kind: type[T]) -> T | None:
        """The value of that key; None when there is none that is whole."""
        return await anyio.to_thread.run_sync(self._get, key, kind)

    async def put(self, key: str, value: object) -> None:
        """Keep a value. One that is too large for the limit is not kept."""
        await anyio.to_thread.run_sync(self._put, key, value)

    def close(self) -> None:
        """Close the file; from then on nothing is found and nothing kept. Blocking."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def _get(self, key: str, kind: type[T]) -> T | None:
        row = self._guarded(lambda database: _read(database, key))
        if row is None:
            return None
        try:
            if hashlib.sha256(row[1]).digest() != row[0]:
                raise ValueError("its checksum is wrong")
            value: T = _adapter(kind).validate_python(json.loads(zlib.decompress(row[1])))
            return value
        except (ValueError, zlib.error, RecursionError) as error:
            self._warn("an entry is damaged and will be made again", error)
            self._guarded(lambda database: _remove(database, key))
            return None

    def _put(self, key: str, value: object) -> None:
        try:
            packed = zlib.compress(json.dumps(plain(value)).encode(), 1)
        except (TypeError, ValueError, RecursionError) as error:
            self._warn("a value can't be kept, it is no JSON", error)
            return
        if len(packed) <= self._limit // ENTRY_SHARE:
            self._guarded(lambda database: _write(database, key, packed, self._limit))

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `work` comes to, with a file that is good; None without one."""
        with self._lock:
            try:
                return work(self._connected())
            except (sqlite3.OperationalError, OSError) as error:
                self._warn("scores are not kept", error)
                self._disconnect()
            except sqlite3.DatabaseError as error:
                self._warn("the file is damaged: it was set aside", error)
                self._set_aside()
            except _Closed:
                pass
            return None

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise _Closed
        if self._database is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = _open(self.path)
            self._file = os.stat(self.path).st_ino
        return self._database

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _set_aside(self) -> None:
        """Move the damaged file away, unless another process did so. The last one is kept."""
        self._disconnect()
        try:
            with self.path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self._file in (0, os.stat(self.path).st_ino):
                    for suffix in ("-wal", "-shm"):
                        Path(f"{self.path}{suffix}").unlink(missing_ok=True)
                    self.path.replace(self.path.with_suffix(".damaged"))
        except OSError as error:
            self._warn("the damaged file can't be set aside", error)
        self._file = 0

    def _warn(self, what: str, error: Exception) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("%s: %s (%s)", self.path, what, error)


class _Closed(Exception):
    pass


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA journal_size_limit = 4194304")
        database.executescript(_SCHEMA)
    except BaseException:
        database.close()
        raise
    return database


def _read(database: sqlite3.Connection, key: str) -> tuple[bytes, bytes] | None:
    row = database.execute(
        "SELECT digest, value, used FROM entries WHERE key = ?", (key,)
    ).fetchone()
    if row is None:
        return None
    now = time.time()
    if abs(now - row[2]) > FRESH_SECONDS:
        database.execute("UPDATE entries SET used = ? WHERE key = ?", (now, key))
    return bytes(row[0]), bytes(row[1])


def _write(database: sqlite3.Connection, key: str, packed: bytes, limit: int) -> None:
    checksum = hashlib.sha256(packed).digest()
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)",
            (key, time.time(), checksum, packed),
        )
        while _size(database) > limit and _forget(database, key):
            pass
    except BaseException:
        if database.in_transaction:  # a full disk has ended it
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _forget(database: sqlite3.Connection, but: str) -> bool:
    """Remove a few of the entries that were not used for longest; False: none is left."""
    (count,) = database.execute("SELECT count(*) FROM entries").fetchone()
    done = database.execute(
        "DELETE FROM entries WHERE key IN "
        "(SELECT key FROM entries WHERE key != ? ORDER BY used LIMIT ?)",
        (but, count // 64 + 1),
    )
    return done.rowcount > 0


def _remove(database: sqlite3.Connection, key: str) -> None:
    database.execute("DELETE FROM entries WHERE key = ?", (key,))


def _size(database: sqlite3.Connection) -> int:
    """Bytes in use, the file's free pages left out."""
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    # Inside: pydantic costs more to import than all of this module.
    from pydantic import TypeAdapter

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]
