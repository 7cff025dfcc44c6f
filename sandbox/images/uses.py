"""When images were last used, in an SQLite file that processes share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import anyio.to_thread

from patchgym.sandbox.errors import SandboxUsageError

BUSY_LIMIT = 30.0  # seconds to wait for another process's write
TABLE = """CREATE TABLE IF NOT EXISTS uses
    (daemon TEXT, tag TEXT, used REAL, PRIMARY KEY (daemon, tag)) WITHOUT ROWID"""


class Uses:
    """Times of last use, by daemon and tag. Raises SandboxUsageError where no file can be."""

    def __init__(self, path: Path, daemon: str) -> None:
        self._path = path
        self._daemon = daemon

    async def touch(self, *tags: str) -> None:
        """They are used now."""
        now = time.time()
        await anyio.to_thread.run_sync(self._touch, [(self._daemon, tag, now) for tag in tags])

    async def times(self) -> dict[str, float]:
        """Unix time of last use by tag."""
        return await anyio.to_thread.run_sync(self._times)

    async def forget(self, *tags: str) -> None:
        """They are gone."""
        await anyio.to_thread.run_sync(self._forget, [(self._daemon, tag) for tag in tags])

    def _touch(self, rows: Sequence[tuple[str, str, float]]) -> None:
        with self._open() as database:
            database.executemany("INSERT OR REPLACE INTO uses VALUES (?, ?, ?)", rows)

    def _times(self) -> dict[str, float]:
        with self._open() as database:
            query = "SELECT tag, used FROM uses WHERE daemon = ?"
            return dict(database.execute(query, (self._daemon,)).fetchall())

    def _forget(self, rows: Sequence[tuple[str, str]]) -> None:
        with self._open() as database:
            database.executemany("DELETE FROM uses WHERE daemon = ? AND tag = ?", rows)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=BUSY_LIMIT)) as database, database:
                database.execute(TABLE)
                yield database
        except (OSError, sqlite3.Error) as problem:
            raise SandboxUsageError(f"can't keep uses in {self._path}: {problem}") from problem
