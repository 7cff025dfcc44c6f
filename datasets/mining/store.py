"""What a mining run has so far, on disk, and the tasks' file at its end.

    OUT.work/decided.jsonl   one JSON object a commit, each synced before it counts
    OUT.work/state.json      the newest commit of the last run that came to its end
    OUT.work/report.json     counts and reasons of the last run
    OUT.work/lock            held while a run writes
    OUT.work/view.git        see `view`

A decision is filed under a hash of all that it depends on: the commit, how its environment is made,
and the settings. One that the machine failed is never filed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from patchgym.datasets.task import Task

from .errors import MiningError
from .split import Dropped

FORMAT = 1
"""Raised when what is decided changes for the same commit and settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one commit; one of the two is set."""

    commit: str
    """Full id."""
    task: Mapping[str, Any] | None = None
    """The task as JSON holds it, but for `repository`."""
    dropped: Dropped | None = None


def key_of(parts: Mapping[str, object]) -> str:
    """Names a decision by all that it depends on."""
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def row_of(task: Task) -> dict[str, Any]:
    """A task as JSON holds it, default values left out."""
    values = asdict(task)
    row = {item.name: values[item.name] for item in fields(task)}
    return {
        name: value
        for name, value in row.items()
        if not (value is None or value in ("", (), {})) or name == "split"
    }


class Store:
    """The work folder of one tasks' file. A context manager; every method blocks.

    Raises MiningError when the folder can't be used or another process is at it.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.with_name(f"{out.name}.work")
        self._known: dict[str, Decision] = {}
        self._file = self._lock = -1
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            self._file = self._open()
        except OSError as error:
            self.__exit__(None, None, None)
            raise self._unwritable(error) from error
        except MiningError:
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

    @property
    def view(self) -> Path:
        """Where the view of the repository goes."""
        return self.folder / "view.git"

    @property
    def last(self) -> str | None:
        """The newest commit that the last whole run looked at."""
        try:
            head = json.loads((self.folder / "state.json").read_text())["head"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return head if isinstance(head, str) else None

    def known(self, key: str) -> Decision | None:
        """A decision that is there already."""
        return self._known.get(key)

    def keep(self, key: str, decision: Decision) -> None:
        """On return the decision survives whatever happens to us."""
        line: dict[str, Any] = {"key": key, "commit": decision.commit}
        if decision.task is not None:
            line["task"] = decision.task
        if decision.dropped is not None:
            line["dropped"] = asdict(decision.dropped)
        try:
            with self._turn:
                self._append(json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error
        self._known[key] = decision

    def finish(self, head: str) -> None:
        """Remember how far a whole run came."""
        self.write("state.json", json.dumps({"head": head}) + "\n")

    def write(self, name: str, text: str) -> None:
        """A file of the folder, whole or not at all."""
        try:
            _replace(self.folder / name, text)
        except OSError as error:
            raise self._unwritable(error) from error

    def merge(
        self,
        rows: Iterable[Mapping[str, Any]],
        decided: Collection[str],
        order: Mapping[str, int],
        subproject: str = "",
    ) -> None:
        """Put tasks into the file, in the order of their commits.

        Tasks of `decided` commits that are no longer among the rows go; all others stay as they
        are, those of other subprojects too, and those of commits outside `order` first.
        """
        kept: list[tuple[int, str]] = []
        for line in self._lines():
            commit, folder = _origin_of(line)
            if commit not in decided or folder != subproject:
                kept.append((order.get(commit, -1), line))
        for row in rows:
            place = order.get(row["provenance"]["commit"], len(order))
            kept.append((place, json.dumps(row, ensure_ascii=False)))
        kept.sort(key=lambda item: item[0])
        if kept or self.out.exists():
            try:
                _replace(self.out, "".join(f"{line}\n" for _, line in kept))
            except OSError as error:
                raise MiningError(f"{self.out}: can't be written: {error.strerror}") from error

    def count(self) -> int:
        """How many tasks the file holds."""
        return sum(1 for _ in self._lines())

    def _lines(self) -> Iterator[str]:
        try:
            text = self.out.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            raise MiningError(f"{self.out}: {reason}: name another file for --out") from error
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                if not _is_object(line):
                    raise MiningError(
                        f"{self.out}:{number}: no task: mend it, or name another file for --out"
                    )
                yield line

    def _take_lock(self) -> int:
        path = self.folder / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise MiningError(
                f"{self.folder}: process {path.read_text() or '?'} is mining into {self.out}: "
                "wait for it, or name another file"
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor

    def _open(self) -> int:
        list(self._lines())  # a file that can't be merged into is told before the work
        path = self.folder / "decided.jsonl"
        whole = True
        if path.exists():
            data = path.read_bytes()
            whole = not data or data.endswith(b"\n")
            self._known.update(_read(data))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if not whole:
            os.write(descriptor, b"\n")  # the line that was cut off stays one of its own
        _sync_folder(self.folder)
        return descriptor

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]
        os.fsync(self._file)

    def _unwritable(self, error: OSError) -> MiningError:
        return MiningError(
            f"{self.folder}: can't be written: {error.strerror}: "
            "make room, and the same command goes on"
        )


def _read(data: bytes) -> Iterator[tuple[str, Decision]]:
    """Decisions that can be taken over; a damaged line is one that is decided again."""
    for line in data.split(b"\n"):
        try:
            row = json.loads(line)
            dropped = Dropped(**row["dropped"]) if "dropped" in row else None
            decision = Decision(commit=row["commit"], task=row.get("task"), dropped=dropped)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if (decision.task is None) != (dropped is None):
            yield row["key"], decision


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _origin_of(line: str) -> tuple[str, str]:
    """The commit and the subproject that a task was mined from; empty where it was not."""
    notes = json.loads(line).get("provenance")
    if not isinstance(notes, dict):
        return "", ""
    return str(notes.get("commit", "")), str(notes.get("subproject", ""))


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
