"""JSON lines that outlive whoever writes them, and whole files that are never half there."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class JournalBusy(OSError):
    """Another process writes this journal; its number is the text, `?` when not known."""


class Journal:
    """Lines in one folder, which one process at a time may write; each is synced when it counts.

    Methods block. Raises JournalBusy, and OSError when the folder can't be used.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._path = folder / name
        self._file = self._lock = -1
        self._turn = threading.Lock()

    def open(self) -> list[dict[str, Any]]:
        """Take the folder's lock and read what is there; damaged lines are let pass."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            data = self._path.read_bytes() if self._path.exists() else b""
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o644)
            if data and not data.endswith(b"\n"):
                os.write(self._file, b"\n")  # the line that was cut off stays one of its own
            sync(self.folder)
        except OSError:
            self.close()
            raise
        return list(_rows(data))

    def append(self, row: Mapping[str, Any]) -> None:
        """On return the line survives whatever happens to us."""
        data = json.dumps(row).encode() + b"\n"
        with self._turn:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)

    def close(self) -> None:
        """Let go of the file and the lock; again does nothing."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _take_lock(self) -> int:
        path = self.folder / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise JournalBusy(path.read_text() or "?") from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor


def _rows(data: bytes) -> Iterator[dict[str, Any]]:
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, synced, with mode 644."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def sync(path: Path) -> None:
    """Return when a file's content, or a folder's names, are on disk even if the power goes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
