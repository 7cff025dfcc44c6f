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

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from patchgym.datasets.journal import Journal, JournalBusy, write_whole

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


class Store:
    """The work folder of one tasks' file. A context manager; every method blocks.

    Raises MiningError when the folder can't be used or another process is at it.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.with_name(f"{out.name}.work")
        self._known: dict[str, Decision] = {}
        self._journal = Journal(self.folder, "decided.jsonl")

    def __enter__(self) -> Self:
        list(self._lines())  # a file that can't be merged into is told before the work
        try:
            self._known.update(_decisions(self._journal.open()))
        except JournalBusy as process:
            raise MiningError(
                f"{self.folder}: process {process} is mining into {self.out}: "
                "wait for it, or name another file"
            ) from None
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()

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
            self._journal.append(line)
        except OSError as error:
            raise self._unwritable(error) from error
        self._known[key] = decision

    def finish(self, head: str) -> None:
        """Remember how far a whole run came."""
        self.write("state.json", json.dumps({"head": head}) + "\n")

    def write(self, name: str, text: str) -> None:
        """A file of the folder, whole or not at all."""
        try:
            write_whole(self.folder / name, text.encode())
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
                write_whole(self.out, "".join(f"{line}\n" for _, line in kept).encode())
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

    def _unwritable(self, error: OSError) -> MiningError:
        return MiningError(
            f"{self.folder}: can't be written: {error.strerror}: "
            "make room, and the same command goes on"
        )


def _decisions(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Decision]]:
    """Decisions that can be taken over; a damaged one is decided again."""
    for row in rows:
        try:
            dropped = Dropped(**row["dropped"]) if "dropped" in row else None
            decision = Decision(commit=row["commit"], task=row.get("task"), dropped=dropped)
            key = row["key"]
        except (KeyError, TypeError):
            continue
        if (decision.task is None) != (dropped is None):
            yield key, decision


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
