"""Addresses of the trajectory viewer.

/runs/RUN/trajectories                 rollouts: search, filter, sort, a page at a time
/runs/RUN/trajectories/ID              one rollout; its query says which list it was opened from
/runs/RUN/trajectories/ID/tokens       ids of a turn, with log-probabilities (JSON)
/runs/RUN/trajectories/ID/text         a part of it, whole and plain
/runs/RUN/groups/GROUP                 a group side by side
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from patchgym.agent import STOP_RULES, Turn
from patchgym.trainer.dashboard.pages import render
from patchgym.trainer.dashboard.runs import open_run, signature
from patchgym.trainer.errors import UserError
from patchgym.trainer.trajectory_view import rollout_record

from . import listing
from .detail import detail_of, patch_file
from .filters import Filters
from .group_view import group_view
from .links import Links
from .rollout import Rollout, open_rollout, texts
from .token_view import MOST, token_window
from .vocabulary import vocabulary_of

_SHOWN = 2 << 20  # bytes of plain text that a browser shows at ease; more is saved to a file


def _list(request: Request) -> Response:
    filters = Filters.of(request.query_params)
    before, after = (request.query_params.get(name, "") for name in ("before", "after"))
    with open_run(request) as run:
        counts, outcomes = listing.totals(run.folder.ledger, signature(run.folder), filters)
        return render(
            request,
            "trajectories/list.html",
            run=run,
            tab="trajectories",
            filters=filters,
            page=listing.page(run.reader, filters, before=before, after=after),
            counts=counts,
            outcomes=outcomes,
            purposes=listing.purposes(run.reader),
            tasks=listing.task_ids(run.reader),
            rules=STOP_RULES,
            link=Links(run.name, filters),
        )


def _show(request: Request) -> Response:
    filters = Filters.of(request.query_params)
    with open_run(request) as run:
        rollout = open_rollout(run, request.path_params["rollout"], arrays=True)
        before, after = listing.neighbours(run.reader, filters, rollout.row)
        page = render(
            request,
            "trajectories/show.html",
            run=run,
            tab="trajectories",
            filters=filters,
            detail=detail_of(rollout),
            before=before,
            after=after,
            name=rollout.name,
            link=Links(run.name, filters),
        )
    page.background = BackgroundTask(vocabulary_of, run.folder)  # in case tokens are asked for
    return page


def _group(request: Request) -> Response:
    group_id = request.path_params["group"]
    with open_run(request) as run:
        view = group_view(run, group_id)
        if view is None:
            raise HTTPException(404, f"there is no group {group_id!r} in {run.name}")
        return render(
            request,
            "trajectories/group.html",
            run=run,
            tab="trajectories",
            group_id=group_id,
            view=view,
            rules=STOP_RULES,
            link=Links(run.name, Filters()),
        )


def _tokens(request: Request) -> Response:
    with open_run(request) as run:
        rollout = open_rollout(run, request.path_params["rollout"], arrays=True)
        turn = _turn(rollout, request.query_params.get("turn", ""))
        vocabulary = vocabulary_of(run.folder)
    window = token_window(
        turn,
        vocabulary,
        start=_whole(request, "start", -200),
        most=_whole(request, "most", MOST),
    )
    return JSONResponse(window.record(vocabulary.note))


def _text(request: Request) -> Response:
    part = request.query_params.get("part", "")
    with open_run(request) as run:
        context = part.startswith("context-")
        arrays = context or part == "record"
        rollout = open_rollout(run, request.path_params["rollout"], arrays=arrays)
        if context:
            vocabulary = vocabulary_of(run.folder)
            if vocabulary.problem:
                raise HTTPException(404, vocabulary.problem)
            found: str | bytes | None = vocabulary.text(
                _turn(rollout, part.removeprefix("context-")).context
            )
        elif part == "record" and rollout.stored is not None:
            found = json.dumps(rollout_record(rollout.stored), indent=1)
        elif part == "patch" and rollout.stored is not None:
            found = rollout.stored.trajectory.outcome  # to the byte
        else:
            found = dict(texts(rollout)).get(part)
    if rollout.problem:
        raise HTTPException(404, rollout.problem)
    if found is None:
        raise HTTPException(404, f"rollout {rollout.name} has no part {part!r}")
    file = patch_file(rollout.name) if part == "patch" else f"{part}.txt"
    return plain_text(found, file, save="save" in request.query_params)


def plain_text(text: str | bytes, file: str, *, save: bool = False) -> Response:
    """`text` as it is; saved as `file` rather than shown where it is large, or with `save`."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
    headers = {"X-Content-Type-Options": "nosniff"}
    if save or len(data) > _SHOWN:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file)}"
    return Response(data, media_type="text/plain; charset=utf-8", headers=headers)


def _turn(rollout: Rollout, number: str) -> Turn:
    if rollout.stored is None:
        raise HTTPException(404, rollout.problem)
    turns = rollout.stored.trajectory.turns
    if not (number.isdecimal() and len(number) < 9 and 1 <= int(number) <= len(turns)):
        raise HTTPException(404, f"rollout {rollout.name} has turns 1 to {len(turns)}")
    return turns[int(number) - 1]


def _whole(request: Request, name: str, otherwise: int) -> int:
    text: Any = request.query_params.get(name, otherwise)
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name}={text}: not a whole number") from None


ROUTES: list[BaseRoute] = [
    Route("/runs/{run}/trajectories", _list, name="trajectories"),
    Route("/runs/{run}/trajectories/{rollout:path}/tokens", _tokens),
    Route("/runs/{run}/trajectories/{rollout:path}/text", _text),
    Route("/runs/{run}/trajectories/{rollout:path}", _show, name="trajectory"),
    Route("/runs/{run}/groups/{group:path}", _group, name="group"),
]
