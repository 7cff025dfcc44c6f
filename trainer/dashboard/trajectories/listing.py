"""Rollouts of a run, a page at a time, however many there are.

Pages are told by the row at their edge (its sort value and id), not by how many rows precede them:
the thousandth page costs what the first does, and rows that come in meanwhile move nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from patchgym.trainer.ledger import LedgerReader

from .filters import SORTS, FilterError, Filters

PAGE = 50
"""Rows of a page."""

_COLUMNS = (
    "r.id, r.purpose, r.group_id, r.task_id, r.member, r.stop_reason, r.error, r.reward, "
    "r.verdict, r.turns, r.sampled_tokens, r.seconds, r.finished, r.evidence, r.tampering"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some neighbouring rows."""

    rows: Sequence[sqlite3.Row]
    """Columns of `rollouts`, and `step` (of its group; NULL when it was not trained)."""
    before: str
    """Cursor of the page before; empty on the first."""
    after: str
    """Cursor of the next page; empty on the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the rollouts that were asked for come to."""

    rollouts: int
    resolved: int
    unresolved: int
    tampering: int
    """With findings; 0 in runs that did not record them."""
    mean_reward: float | None
    """Of those that have one."""


def page(
    reader: LedgerReader, filters: Filters, *, before: str = "", after: str = "", most: int = PAGE
) -> Page:
    """The page that begins after the row of cursor `after`, or ends before that of `before`.

    Raises FilterError for a cursor that is none.
    """
    found = _rows(reader, filters, before or after, most + 1, back=bool(before))
    more, rows = len(found) > most, found[:most]
    if before:
        rows.reverse()
    has_before, has_after = (more, True) if before else (bool(after), more)
    return Page(
        rows=rows,
        before=cursor(rows[0], filters) if rows and has_before else "",
        after=cursor(rows[-1], filters) if rows and has_after else "",
    )


def neighbours(
    reader: LedgerReader, filters: Filters, row: sqlite3.Row
) -> tuple[str | None, str | None]:
    """Ids of the rollouts before and after `row` in the list that `filters` ask for."""
    edge = cursor(row, filters)
    before = _rows(reader, filters, edge, 1, back=True)
    after = _rows(reader, filters, edge, 1, back=False)
    return before[0]["id"] if before else None, after[0]["id"] if after else None


def counts(reader: LedgerReader, filters: Filters) -> Counts:
    """Totals of all rows that `filters` ask for."""
    where, values = filters.where()
    # One pass and no GROUP BY, whose sorting would take several times as long.
    (row,) = reader.rows(
        "SELECT COUNT(*) AS n, AVG(r.reward) AS reward, TOTAL(r.verdict = 'resolved') AS resolved, "
        "TOTAL(r.verdict = 'unresolved') AS unresolved, TOTAL(r.tampering > 0) AS tampering "
        f"FROM rollouts r WHERE {where}",
        values,
    )
    return Counts(
        rollouts=row["n"],
        resolved=int(row["resolved"]),
        unresolved=int(row["unresolved"]),
        tampering=int(row["tampering"]),
        mean_reward=row["reward"],
    )


@lru_cache(maxsize=256)
def totals(ledger: Path, written: str, filters: Filters) -> tuple[Counts, Mapping[str, int]]:
    """`counts` and `outcomes` of a ledger, kept as long as `written` names what is in it."""
    del written
    with LedgerReader(ledger) as reader:
        return counts(reader, filters), outcomes(reader)


def outcomes(reader: LedgerReader) -> dict[str, int]:
    """All rollouts of the run by stop reason, the most frequent first; read off an index."""
    rows = reader.rows("SELECT stop_reason, COUNT(*) FROM rollouts GROUP BY 1 ORDER BY 2 DESC")
    return {row[0]: row[1] for row in rows}


def purposes(reader: LedgerReader) -> list[str]:
    """What rollouts were made for: `train`, and the evaluations by name."""
    rows = reader.rows("SELECT DISTINCT name FROM evaluations ORDER BY 1 LIMIT 200")
    return ["train", *(row[0] for row in rows)]


def task_ids(reader: LedgerReader, most: int = 500) -> list[str]:
    """Some of the tasks that have rollouts, for suggestions."""
    rows = reader.rows(
        # Known tasks first, where the ledger has a table of them: that needs no look at rollouts.
        "SELECT id FROM tasks UNION SELECT task_id FROM evaluations ORDER BY 1 LIMIT ?",
        (most,),
    )
    return [row[0] for row in rows]


def cursor(row: sqlite3.Row, filters: Filters) -> str:
    """Names `row` as the edge of a page."""
    names = {"task": "task_id", "group": "group_id", "tokens": "sampled_tokens"}
    value = row[names.get(filters.column, filters.column)]
    return json.dumps([-1e300 if value is None else value, row["id"]])


def _rows(
    reader: LedgerReader, filters: Filters, edge: str, most: int, *, back: bool
) -> list[sqlite3.Row]:
    """The `most` rows next to `edge`, nearest first."""
    where, values = filters.where()
    key = SORTS[filters.column]
    falling = filters.descending != back
    if edge:
        where += f" AND ({key}, r.id) {'<' if falling else '>'} (?, ?)"
        values += _edge(edge)
    order = "DESC" if falling else "ASC"
    return reader.rows(
        f"SELECT {_COLUMNS}, (SELECT step FROM groups g WHERE g.id = r.group_id) AS step "
        f"FROM rollouts r WHERE {where} ORDER BY {key} {order}, r.id {order} LIMIT ?",
        [*values, most],
    )


def _edge(text: str) -> list[Any]:
    try:
        value, name = json.loads(text)
    except (ValueError, TypeError):
        value, name = None, None
    if not isinstance(value, str | int | float) or not isinstance(name, str):
        raise FilterError("the address names a place in the list that is none: begin anew")
    return [value, name]
