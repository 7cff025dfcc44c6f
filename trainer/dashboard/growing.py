"""Sums over all rollouts of a run, kept between looks: a look adds what was recorded since.

A rollout that was recorded anew, and a ledger that was put back, are noticed by the number of rows
and by the last row that was added; then all are summed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from .recent import Recent
from .runs import OpenRun

_KEPT = 16  # runs
_LAST = "SELECT rowid, id, finished FROM rollouts ORDER BY rowid DESC LIMIT 1"


S = TypeVar("S", bound="Sums")


class Sums(Protocol):
    """What is summed up."""

    def add(self, run: OpenRun, after: int) -> None:
        """Add the rollouts whose row ids are greater than `after`; -1 for all, also of a ledger
        whose rows have none."""

    def count(self) -> int:
        """Rollouts so far."""
        ...

    def copy(self: S) -> S:
        """One that does not grow."""
        ...


@dataclass(slots=True)
class _Known(Generic[S]):
    sums: S
    last: tuple[int, str, float] | None = None
    """Row id, id and end of the rollout that was recorded last."""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Growing(Generic[S]):
    """Sums of the runs that were looked at last, by run."""

    def __init__(self, empty: Callable[[], S]) -> None:
        self._empty = empty
        self._known: Recent[str, _Known[S]] = Recent(_KEPT)

    def read(self, run: OpenRun) -> S:
        """The sums as of now. Blocking."""
        if run.old:  # its rows have no row ids: they come out of a view
            sums = self._empty()
            sums.add(run, -1)
            return sums
        known = self._known.of(str(run.folder.path), lambda: _Known(self._empty()))
        with known.lock:
            run.reader.rows("BEGIN")
            try:
                self._read_on(run, known)
            finally:
                run.reader.rows("COMMIT")
            return known.sums.copy()

    def _read_on(self, run: OpenRun, known: _Known[S]) -> None:
        if not _still_there(run, known.last):
            known.sums, known.last = self._empty(), None
        last = run.reader.rows(_LAST)
        if not last:
            return
        found = (last[0]["rowid"], last[0]["id"], last[0]["finished"])
        if found != known.last:
            known.sums.add(run, -1 if known.last is None else known.last[0])
            known.last = found
        (count,) = run.reader.rows("SELECT COUNT(*) FROM rollouts")[0]
        if count != known.sums.count():
            known.sums = self._empty()
            known.sums.add(run, -1)


def _still_there(run: OpenRun, last: tuple[int, str, float] | None) -> bool:
    if last is None:
        return True
    number, name, finished = last
    rows = run.reader.rows("SELECT id, finished FROM rollouts WHERE rowid = ?", (number,))
    return bool(rows) and (rows[0]["id"], rows[0]["finished"]) == (name, finished)
