"""Templates to pages, errors included: everything is escaped, and nothing is compiled twice."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from patchgym.trainer.errors import UserError

from .access import HEADERS
from .assets import address_of, style_places
from .inert import inert, one_line
from .runs import is_busy
from .words import FILTERS

_TEMPLATES = Path(__file__).with_name("templates")
TABS = (
    ("", "Overview"),
    ("steps", "Steps"),
    ("trajectories", "Trajectories"),
    ("tasks", "Tasks"),
    ("events", "Events"),
    ("settings", "Settings"),
)
"""Pages of one run: the rest of the address (`tab` of a template), and the word for it."""


def render(request: Request, template: str, /, *, status: int = 200, **context: Any) -> Response:
    """The page that `template` (a path below templates/) makes of `context`.

    Every template also has `request`, `path` (of this page), `form_word` (for the hidden field
    `form` of a form), `asset(NAME)` (address of a file in static/), `run_url(RUN, REST)`, and
    the filters in `words.FILTERS`, `inert` (foreign text as it is, marked) and `one_line` (the same
    for attributes).
    """
    # The guard sets them too; an answer to a fault of ours does not come past it.
    return HTMLResponse(text(request, template, **context), status_code=status, headers=HEADERS)


def text(request: Request, template: str, /, **context: Any) -> str:
    """The same as a string, for a part of a page."""
    known = {
        "request": request,
        "path": request.url.path,
        "form_word": request.app.state.access.form_word if "app" in request.scope else "",
    }
    return _environment().get_template(template).render({**known, **context})


def problem(
    request: Request, status: int, title: str, words: str, *, template: str = "problem.html"
) -> Response:
    """A page that says what is wrong, in `words`."""
    return render(request, template, status=status, heading=title, words=words)


def run_url(name: str, rest: str = "", **query: Any) -> str:
    """The address of a run's page; `rest` begins below it, `query` leaves out what is None."""
    path = f"/runs/{quote(name, safe='')}" + (f"/{rest}" if rest else "")
    kept = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(kept)}" if kept else path


async def on_http_error(request: Request, error: Exception) -> Response:
    """404 and its like."""
    assert isinstance(error, HTTPException)
    titles = {404: "Not here", 405: "Not like that", 403: "Not from there"}
    words = error.detail
    if words == "Not Found":
        words = f"there is no page {request.url.path}"
    return problem(request, error.status_code, titles.get(error.status_code, "No"), words)


async def on_user_error(request: Request, error: Exception) -> Response:
    """A run that can't be read, and the like: 422."""
    assert isinstance(error, UserError)
    return problem(request, 422, "This can't be shown", str(error))


async def on_ledger_error(request: Request, error: Exception) -> Response:
    """The ledger did not answer in time: 503. Anything else is a fault of ours."""
    assert isinstance(error, sqlite3.Error)
    if not is_busy(error):
        raise error
    words = "the run's ledger was busy for too long; load the page again"
    return problem(request, 503, "Not now", words)


async def on_fault(request: Request, error: Exception) -> Response:
    """A fault of ours: 500; its trace is in the terminal."""
    words = f"{type(error).__name__}; the terminal in which the server runs has more"
    return problem(request, 500, "That is a fault of patchgym's", words)


def warm() -> None:
    """Compile all templates: a second that no visitor need wait."""
    for name in _environment().list_templates():
        _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(FILTERS, inert=inert, one_line=one_line)
    made.globals.update(asset=address_of, style_places=style_places, run_url=run_url, run_tabs=TABS)
    return made
