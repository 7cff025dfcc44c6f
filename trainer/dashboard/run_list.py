"""The list of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from .listing import Listing, listing
from .pages import render, text
from .runs import runs_in
from .summaries import Summary, digest, sparkline, summary_of

LIVE, CALM = 1000, 5000
"""Milliseconds between two looks of the browser, while a run goes on and otherwise."""
_FILTERS = ("q", "kind", "state")
_NONE = float("-inf")
_COLUMNS: dict[str, Callable[[Summary], Any]] = {
    "name": lambda each: each.name,
    "state": lambda each: each.state,
    "began": lambda each: each.began,
    "steps": lambda each: each.steps,
    "last": lambda each: _NONE if each.last is None else each.last,
    "rate": lambda each: _NONE if each.rate is None else each.rate,
    "idle": lambda each: _NONE if each.idle is None else each.idle,
    "rollouts": lambda each: each.rollouts,
    "seconds": lambda each: each.seconds,
}


def _home(request: Request) -> Response:
    return RedirectResponse("/runs", status_code=307)


def _page(request: Request) -> Response:
    return render(request, "run_list.html", **_context(request, "/runs"))


def _now(request: Request) -> Response:
    context = _context(request, "/runs")
    if context["seen"] == request.query_params.get("seen"):
        return Response(status_code=204)
    part = text(request, "run_rows.html", **context)
    return JSONResponse(
        {"seen": context["seen"], "every": context["every"], "parts": {"part-rows": part}}
    )


def _context(request: Request, path: str) -> dict[str, Any]:
    known = [summary_of(folder) for folder in runs_in(request.app.state.root)]
    asked = listing(request, _COLUMNS, "-began", _FILTERS, path=path)
    found = [each for each in known if _fits(each, asked)]
    found.sort(key=lambda each: (_COLUMNS[asked.sort](each), each.name), reverse=asked.descending)
    asked = asked.of(len(found))
    shown = found[asked.offset : asked.offset + asked.size]
    return {
        "listing": asked,
        "rows": shown,
        "curves": {each.name: sparkline(each.curve) for each in shown},
        "known": len(known),
        "root": request.app.state.root,
        "seen": digest(shown),
        "every": LIVE if _any_running(known) else CALM,
    }


def _fits(each: Summary, asked: Listing) -> bool:
    wanted = asked.filters
    return (
        wanted.get("q", "").lower() in each.name.lower()
        and wanted.get("kind", each.kind) == each.kind
        and each.state.startswith(wanted.get("state", ""))
    )


def _any_running(known: Sequence[Summary]) -> bool:
    return any(each.state == "running" for each in known)


ROUTES = [Route("/", _home), Route("/runs", _page, name="runs"), Route("/list/now", _now)]
