"""The pages of a folder of runs, as one ASGI application.

Handlers are plain functions: each runs in a worker thread, where it may read the disk, and opens
the ledger for itself. What the event loop runs is the guard and the live updates.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from patchgym.trainer.errors import UserError

from . import (
    assets,
    captures,
    compare,
    events,
    run_list,
    run_page,
    sandboxes,
    settings,
    steps,
    tasks,
    trajectories,
)
from .access import Access, Guard, access_for
from .captures import Captures
from .pages import on_fault, on_http_error, on_ledger_error, on_user_error

ROUTES: list[BaseRoute] = [
    *assets.ROUTES,
    *run_list.ROUTES,
    *run_page.ROUTES,
    *trajectories.ROUTES,
    *captures.ROUTES,
    *steps.ROUTES,
    *tasks.ROUTES,
    *events.ROUTES,
    *settings.ROUTES,
    *compare.ROUTES,
    *sandboxes.ROUTES,
]
"""By module; the first that fits answers."""


def create_app(root: Path, token: str = "", *, access: Access | None = None) -> Starlette:
    """The application for the runs in `root`; by default for this machine alone."""
    known = access or access_for("127.0.0.1", token)
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, access=known)],
        exception_handlers={
            HTTPException: on_http_error,
            UserError: on_user_error,
            sqlite3.Error: on_ledger_error,
            Exception: on_fault,
        },
    )
    app.state.root = root.resolve()
    app.state.access = known
    app.state.captures = Captures()
    return app
