"""What is wrong with a ledger's file, in one line, and what can be done about it."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from patchgym.trainer.errors import RunError

from .schema import SCHEMA_VERSION

_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PROGRAM = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}


def backup_path(path: Path) -> Path:
    """Where the backup of a ledger lies."""
    return path.with_name(f"{path.name}.backup")


def is_damage(error: sqlite3.Error) -> bool:
    """The file's content is at fault, not the disk and not the statement."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGED


def damaged(path: Path, what: str) -> RunError:
    """The error for a file that SQLite can't make sense of; the file is left as it is."""
    backup = backup_path(path)
    if backup.is_file():
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(backup.stat().st_mtime))
        advice = (
            f"{backup.name} is whole and of {made}: move {path.name}, {path.name}-wal and "
            f"{path.name}-shm away, copy the backup to {path.name}, and go on with --resume"
        )
    else:
        advice = (
            f"there is no {backup.name}; `sqlite3 {path.name} .recover` may save what can still "
            "be read"
        )
    return RunError(f"{path}: damaged: {what}; it was left as it is. {advice}")


def unwritable(path: Path, error: Exception) -> RunError:
    """The error for a ledger that could not be written, for whatever reason."""
    if not path.parent.is_dir():
        return RunError(
            f"{path}: can't be written: {path.parent} is gone; what was checkpointed elsewhere is "
            "kept, pick another --run.folder"
        )
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return damaged(path, str(error))
    if not os.access(path.parent, os.W_OK):
        return RunError(
            f"{path}: can't be written: {path.parent} is read-only; mount it writable or pick "
            "another --run.folder, then go on with --resume"
        )
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    if code in _PROGRAM:
        return RunError(f"{path}: can't be written: {error}; that is patchgym's fault: report it")
    return RunError(
        f"{path}: can't be written: {error}; free space or pick another --run.folder, then go on "
        "with --resume"
    )


class StuckDisk(RunError):
    """The disk neither takes anything nor says why."""


def stuck(path: Path, seconds: float, waiting: int) -> StuckDisk:
    """The error for a ledger whose `waiting` transactions were not taken for `seconds`."""
    return StuckDisk(
        f"{path}: nothing was written for {seconds:.0f} s, {waiting} transactions wait: its disk "
        "is stuck (a network mount that is gone, a device that fails); once it answers, go on with "
        "--resume"
    )


def too_new(path: Path, version: int) -> RunError:
    """The error for a ledger of a later version of the program."""
    return RunError(
        f"{path}: a ledger of version {version}, and this patchgym knows versions up to "
        f"{SCHEMA_VERSION}: update patchgym, or use the one that made the run"
    )


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Have SQLite look the file through; RunError when it finds anything."""
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        found = str(error)
    if found != "ok":
        raise damaged(path, str(found).splitlines()[-1])
