"""A ledger's file as a whole: opened for reading, and copied while it is written to."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from patchgym.datasets.journal import sync


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that can't write.

    A ledger that was closed in order is read on a read-only disk, too: SQLite needs to make a file
    beside it otherwise.
    """
    address = f"file:{quote(str(path))}?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if log.is_file() and log.stat().st_size:
            raise
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
    except BaseException:
        connection.close()
        raise
    return connection


def copy_database(source: Path, target: Path) -> None:
    """Copy the ledger as it stands now, whole or not at all, synced (blocking; OSError and
    sqlite3.Error when it can't be). Whoever writes to `source` meanwhile is not held up."""
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    reader = connect_to_read(source)
    try:
        copy = sqlite3.connect(partial)
        try:
            reader.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        finally:
            copy.close()
        sync(partial)
        os.replace(partial, target)
        sync(target.parent)
    finally:
        reader.close()
        partial.unlink(missing_ok=True)
