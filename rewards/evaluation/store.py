"""What an evaluation has so far, on disk: a line for each verdict, safe as soon as it is there.

    REPORT.work/verdicts.jsonl      one JSON object a verdict, each synced before it counts
    REPORT.work/logs/TASK.log       for people, one a verdict
    REPORT.work/lock                held while an evaluation writes

A verdict is filed under a hash of all that it depends on, so that the same command takes it over
and a changed patch, task or setting is judged anew. One that the machine failed is never taken
over.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from patchgym.datasets.task import Task
from patchgym.rewards.base import Verdict

from .errors import EvaluationError
from .record import plain, verdict_from

# Parts of a task that no verdict depends on; its repository is named by base_commit.
_BESIDE = ("statement", "gold_patch", "focus", "split", "repository")
_NAME_LIMIT = 200  # characters of a log's name; file systems have room for 255 bytes


def verdict_key(task: Task, patch: bytes, settings: Mapping[str, object], repeat: int) -> str:
    """Names one verdict by all that it depends on; `repeat` counts from 0."""
    parts = {key: value for key, value in plain(task).items() if key not in _BESIDE}
    patch = patch if not patch.strip() or patch.endswith(b"\n") else patch + b"\n"
    known = [parts, hashlib.sha256(patch.strip() and patch).hexdigest(), plain(settings), repeat]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


class Store:
    """The work folder of one report. A context manager; every method blocks.

    Raises EvaluationError when the folder can't be used or another process is at it.
    """

    def __init__(self, report: Path) -> None:
        self.folder = report.with_name(f"{report.name}.work")
        self._root = report.parent
        self._known: dict[str, Verdict] = {}
        self._file = self._lock = -1

    def __enter__(self) -> Self:
        try:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            self._file = self._open()
        except OSError as error:
            self.__exit__(None, None, None)
            raise EvaluationError(f"{self.folder}: can't be written: {error.strerror}") from error
        except EvaluationError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def known(self, key: str) -> Verdict | None:
        """A verdict that is there already."""
        return self._known.get(key)

    def keep(self, key: str, task_id: str, repeat: int, verdict: Verdict, log: str) -> None:
        """Write the log, then the verdict; on return it survives whatever happens to us."""
        line: dict[str, Any] = {"key": key, "task": task_id, "repeat": repeat}
        line["verdict"] = {**plain(verdict), "log": ""}
        try:
            path = self._log(task_id, repeat)
            path.write_text(log, encoding="utf-8", errors="backslashreplace")
            self._append(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise EvaluationError(f"{self.folder}: can't be written: {error.strerror}") from error
        self._known[key] = verdict

    def log_name(self, task_id: str, repeat: int) -> str:
        """Where the log is, relative to the report's folder."""
        return self._log(task_id, repeat).relative_to(self._root).as_posix()

    def _log(self, task_id: str, repeat: int) -> Path:
        name = task_id.replace("/", "+")  # which no id has
        if len(name) > _NAME_LIMIT:
            name = name[:_NAME_LIMIT] + hashlib.sha256(name.encode()).hexdigest()[:12]
        suffix = f".{repeat + 1}" if repeat else ""
        return self.folder / "logs" / f"{name}{suffix}.log"

    def _take_lock(self) -> int:
        path = self.folder / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise EvaluationError(
                f"{self.folder}: process {path.read_text() or '?'} is writing this report: "
                "wait for it, or name another report"
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor

    def _open(self) -> int:
        path = self.folder / "verdicts.jsonl"
        whole = True
        if path.exists():
            data = path.read_bytes()
            whole = not data or data.endswith(b"\n")
            for key, verdict in _read(data):
                self._known[key] = verdict
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if not whole:
            os.write(descriptor, b"\n")  # the line that was cut off stays one of its own
        _sync_folder(self.folder)
        return descriptor

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)


def _read(data: bytes) -> Iterator[tuple[str, Verdict]]:
    """Verdicts that can be taken over; a damaged line is one that is judged again."""
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
            key, verdict = row["key"], verdict_from(row["verdict"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(key, str) and verdict.evidence != "infra":
            yield key, verdict


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
