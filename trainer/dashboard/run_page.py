"""One run: what it did, and what it does now.

The page comes whole from here. While the run goes on, the browser asks for its parts again, a few
times a second, names what it has seen (`seen`, of the ledger; `origin` and `known`, of the steps),
and gets nothing when nothing was written since.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .bars import counted, learner_bar, longest_waits, sampler_bar
from .captures import kept_captures
from .now import read_heldout, read_now
from .pages import render, text
from .present import read_present, why_of
from .recent import Recent
from .run_view import costs, stats
from .runs import OpenRun, open_run, signature
from .series import Series, read_series
from .words import TONES

LIVE, CALM = 300, 3000
"""Milliseconds between two looks of the browser, while the run goes on and otherwise."""
_PARTS = ("state", "notes", "stats", "present", "bars", "why", "times", "latest", "captures")
_KEPT = 8  # texts
_texts: Recent[tuple[int, int], str] = Recent(_KEPT)
_BY_TONE = {"good": "c1", "bad": "c2", "warn": "c7", "calm": "c8"}


def _page(request: Request) -> Response:
    with open_run(request) as run:
        seen = _seen(request, run)
        context = _context(request, run)
        return render(request, "run.html", tab="", seen=seen, every=_every(run), **context)


def _now(request: Request) -> Response:
    with open_run(request) as run:
        seen = _seen(request, run)
        if seen == request.query_params.get("seen"):
            return Response(status_code=204)
        context = _context(request, run)
        parts = {f"part-{name}": text(request, f"run_{name}.html", **context) for name in _PARTS}
        origin, known = (_integer(request, name) for name in ("origin", "known"))
        return JSONResponse(
            {
                "seen": seen,
                "every": _every(run),
                "parts": parts,
                "series": context["series"].since(origin, known),
                "heldout": _marks(context["now"].heldout),
            }
        )


def _series(request: Request) -> Response:
    with open_run(request) as run:
        series = read_series(run)
        marks = json.dumps(_marks(read_heldout(run, series.length)))
        content = f'{{"series": {_encoded(series)}, "heldout": {marks}}}'
        return Response(content, media_type="application/json")


def _encoded(series: Series) -> str:
    """As JSON; kept, since thousands of steps take longer than all else of the page."""
    key = (series.origin, series.length)
    known = _texts.get(key) or json.dumps(series.since(0, 0), separators=(",", ":"))
    _texts.put(key, known)
    return known


def _context(request: Request, run: OpenRun) -> dict[str, Any]:
    series = read_series(run)
    now = read_now(run, series)
    present = read_present(run)
    account = (present and present.account) or run.reader.meta("idle", {})
    outcomes = {word: _BY_TONE[TONES.get(word, "calm")] for word in now.outcomes if word in TONES}
    return {
        "run": run,
        "now": now,
        "present": present,
        "why": why_of(run) if run.kind == "training" else None,
        "series": series,
        "stats": stats(run, now, series),
        "learner": learner_bar(account),
        "sampler": sampler_bar(account),
        "waits": longest_waits(series),
        "account": account,
        "slot_use": series.newest("slot_use"),
        "outcomes": counted(now.outcomes, outcomes),
        "groups": counted(now.states, {"committed": "c1", "dropped": "c7", "ready": "c3"}),
        "ages": counted({f"{age}": n for age, n in sorted(series.staleness.items())}, {"0": "c1"}),
        "events": run.reader.rows("SELECT * FROM events ORDER BY time DESC LIMIT 6"),
        "asked": request.app.state.captures.last(run.folder),
        "costs": costs(now, series),
        "kept": kept_captures(run.folder),
    }


def _seen(request: Request, run: OpenRun) -> str:
    """Changes with everything that the page shows."""
    asked = request.app.state.captures.last(run.folder)
    capture = "" if asked is None else f"{asked.began}{asked.folder}{bool(asked.words)}"
    return f"{signature(run.folder)} {run.state} {capture}"


def _every(run: OpenRun) -> int:
    return LIVE if run.state == "running" else CALM


def _marks(heldout: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "step": each.step,
            "rate": each.pass_rate,
            "low": each.low,
            "high": each.high,
        }
        for each in heldout
    ]


def _integer(request: Request, name: str) -> int:
    word = request.query_params.get(name, "")
    return int(word) if word.isdecimal() and len(word) < 12 else 0


ROUTES = [
    Route("/runs/{run}", _page, name="run"),
    Route("/runs/{run}/now", _now),
    Route("/runs/{run}/series", _series),
]
