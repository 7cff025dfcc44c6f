"""What happened in a run besides: alarms, stalls, restores, who ran it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .listing import listing
from .pages import render
from .runs import open_run

_COLUMNS = {"time": "time", "kind": "kind"}
_LONGEST = 4000
"""Characters of a report that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event, for people."""

    time: float
    kind: str
    """An alarm's own kind where it is one."""
    words: str
    report: str
    """What is long; empty where nothing is."""
    examples: tuple[str, ...]
    """Rollouts to look at."""


def _page(request: Request) -> Response:
    with open_run(request) as run:
        asked = listing(request, _COLUMNS, "-time", ("kind",))
        kind = asked.filters.get("kind")
        where, values = ("WHERE kind = ?", (kind,)) if kind else ("", ())
        (total,) = run.reader.rows(f"SELECT COUNT(*) FROM events {where}", values)[0]
        asked = asked.of(total)
        rows = run.reader.rows(
            f"SELECT * FROM events {where} {asked.order(_COLUMNS, 'rowid')} LIMIT ? OFFSET ?",
            (*values, asked.size, asked.offset),
        )
        kinds = run.reader.rows("SELECT kind, COUNT(*) AS n FROM events GROUP BY kind")
        events = [read_event(row) for row in rows]
        return render(
            request, "events.html", run=run, tab="events", listing=asked, kinds=kinds, events=events
        )


def read_event(row: sqlite3.Row) -> Event:
    """What a row of the ledger's `events` says."""
    try:
        detail = json.loads(row["detail"])
    except ValueError:
        detail = row["detail"]
    if not isinstance(detail, dict):
        detail = {"detail": detail}
    kind = str(detail.pop("alarm", row["kind"]))
    report = str(detail.pop("report", ""))[:_LONGEST]
    examples = detail.pop("examples", ())
    first, _, rest = report.partition("\n")
    words = [str(detail.pop(name)) for name in ("words", "reason") if detail.get(name)]
    if row["kind"] == "began":
        words.append(_began(detail))
    said = [*words, first, *(f"{name}: {_short(value)}" for name, value in detail.items())]
    return Event(
        time=row["time"],
        kind=kind,
        words="; ".join(word for word in said if word),
        report=rest,
        examples=tuple(str(name) for name in examples) if isinstance(examples, list) else (),
    )


def _began(detail: dict[str, Any]) -> str:
    owner, resumed = detail.pop("owner", {}), detail.pop("resumed", False)
    who = f"process {owner.get('patchgym.owner.pid')} of {owner.get('patchgym.owner.host')}"
    return f"{'resumed' if resumed else 'begun'} by {who}"


def _short(value: object) -> str:
    words = value if isinstance(value, str) else json.dumps(value)
    return words if len(words) <= 400 else f"{words[:400]}\N{HORIZONTAL ELLIPSIS}"


ROUTES = [Route("/runs/{run}/events", _page)]
