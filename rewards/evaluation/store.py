"""What an evaluation has so far, on disk: a line for each verdict, safe as soon as it is there.

    REPORT.work/verdicts.jsonl      one JSON object a verdict, each synced before it counts
    REPORT.work/logs/TASK.log       for people, one a verdict
    REPORT.work/lock                held while an evaluation writes

A verdict is filed under a hash of all that it depends on, so that the same command takes it over
and a changed patch, task or setting is judged anew. One that the machine failed is never taken
over.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from patchgym.datasets.journal import Journal, JournalBusy
from patchgym.datasets.task import Task
from patchgym.rewards.base import Verdict
from patchgym.rewards.plain import plain

from .errors import EvaluationError
from .record import verdict_from

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
        self._journal = Journal(self.folder, "verdicts.jsonl")

    def __enter__(self) -> Self:
        try:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            self._known.update(_verdicts(self._journal.open()))
        except JournalBusy as process:
            raise EvaluationError(
                f"{self.folder}: process {process} is writing this report: "
                "wait for it, or name another report"
            ) from None
        except OSError as error:
            raise EvaluationError(f"{self.folder}: can't be written: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()

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
            self._journal.append(line)
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


def _verdicts(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Verdict]]:
    """Verdicts that can be taken over; a damaged line is one that is judged again."""
    for row in rows:
        try:
            key, verdict = row["key"], verdict_from(row["verdict"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(key, str) and verdict.evidence != "infra":
            yield key, verdict
