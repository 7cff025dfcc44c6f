"""A run's tasks: how often each was tried, how often it was solved, and how that changed."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .listing import Listing, listing
from .pages import render
from .runs import OpenRun, open_run
from .summaries import sparkline
from .totals import TaskTotal, read_task_totals

_COLUMNS: dict[str, Callable[[TaskTotal], Any]] = {
    "task": lambda each: each.task_id,
    "rollouts": lambda each: each.rollouts,
    "rate": lambda each: -1.0 if each.rate is None else each.rate,
    "reward": lambda each: float("-inf") if each.reward is None else each.reward,
    "seconds": lambda each: each.seconds,
    "last": lambda each: each.last,
}
_SOLVED: dict[str, Callable[[TaskTotal], bool]] = {
    "never": lambda each: each.known > 0 and each.resolved == 0,
    "always": lambda each: 0 < each.known == each.resolved,
    "sometimes": lambda each: 0 < each.resolved < each.known,
}
"""How often a task is solved, as the filter `solved` names it: what is sometimes solved teaches."""
_PARTS = 24
"""Points of a small curve, at most."""
_MOST_GROUPS = 500
"""Groups of one task that are listed."""


def _page(request: Request) -> Response:
    with open_run(request) as run:
        totals = read_task_totals(run)
        purposes = sorted({each.purpose for each in totals} | {"train"}, key=_train_first)
        asked = listing(request, _COLUMNS, "-last", ("q", "purpose", "solved"))
        purpose = asked.filters.get("purpose", "train")
        rows = [each for each in totals if each.purpose == purpose and _fits(each, asked)]
        rows.sort(key=lambda each: (_COLUMNS[asked.sort](each), each.task_id))
        if asked.descending:
            rows.reverse()
        asked = asked.of(len(rows))
        rows = rows[asked.offset : asked.offset + asked.size]
        return render(
            request,
            "tasks.html",
            run=run,
            tab="tasks",
            listing=asked,
            rows=rows,
            purpose=purpose,
            purposes=purposes,
            curves=_curves(run, [each.task_id for each in rows], purpose),
            left_out=run.reader.left_out(),
        )


def _train_first(purpose: str) -> tuple[bool, str]:
    return purpose != "train", purpose


def _fits(each: TaskTotal, asked: Listing) -> bool:
    solved = _SOLVED.get(asked.filters.get("solved", ""))
    named = asked.filters.get("q", "").lower() in each.task_id.lower()
    return named and (solved is None or solved(each))


def _curves(run: OpenRun, task_ids: Sequence[str], purpose: str) -> dict[str, str]:
    """Pass rates over a task's rollouts in the order of their ends, in equal parts."""
    marks = ",".join("?" * len(task_ids))
    sql = (
        "SELECT task_id, verdict = 'resolved' AS solved FROM rollouts "
        f"WHERE task_id IN ({marks}) AND purpose = ? AND verdict != 'unknown' "
        "ORDER BY task_id, purpose, finished"
    )
    outcomes: dict[str, list[int]] = defaultdict(list)
    for task_id, solved in run.reader.rows(sql, (*task_ids, purpose)):
        outcomes[task_id].append(solved)
    return {task_id: sparkline(_in_parts(found), 1.0) for task_id, found in outcomes.items()}


def _in_parts(outcomes: Sequence[int]) -> list[float | None]:
    size = max(4, -(-len(outcomes) // _PARTS))
    parts = [outcomes[start : start + size] for start in range(0, len(outcomes), size)]
    if len(parts) > 1 and 2 * len(parts[-1]) < size:
        parts[-2:] = [outcomes[size * (len(parts) - 2) :]]
    return [sum(part) / len(part) for part in parts]


def _one(request: Request) -> Response:
    with open_run(request) as run:
        task_id = request.query_params.get("id", "")
        rows = run.reader.rows("SELECT * FROM tasks WHERE id = ?", (task_id,))
        groups = _groups(run, task_id)
        evaluations = run.reader.rows(_EVALUATED, (task_id,))
        if not (rows or groups or evaluations):
            raise HTTPException(404, f"{run.name} has no rollout of a task {task_id!r}")
        return render(
            request,
            "task.html",
            run=run,
            tab="tasks",
            task_id=task_id,
            record=rows[0] if rows else None,
            groups=groups[:_MOST_GROUPS],
            more=max(0, len(groups) - _MOST_GROUPS),
            evaluations=evaluations,
        )


_EVALUATED = (
    "SELECT name, COUNT(*) AS samples, SUM(resolved) AS solved, COUNT(resolved) AS known, "
    "MIN(policy_version) AS version FROM evaluations WHERE task_id = ? GROUP BY name "
    "ORDER BY version, name = 'after'"
)


def _groups(run: OpenRun, task_id: str) -> list[sqlite3.Row]:
    """A task's groups, the newest first, with what their rollouts came to."""
    sql = (
        "SELECT g.id, g.number, g.state, g.reason, g.step, g.changed, COUNT(r.id) AS rollouts, "
        "SUM(r.verdict = 'resolved') AS solved, SUM(r.verdict != 'unknown') AS known, "
        "AVG(r.reward) AS reward, AVG(r.seconds) AS seconds "
        "FROM groups AS g LEFT JOIN rollouts AS r ON r.group_id = g.id "
        "WHERE g.task_id = ? GROUP BY g.id ORDER BY g.number DESC"
    )
    return run.reader.rows(sql, (task_id,))


def _history(request: Request) -> Response:
    with open_run(request) as run:
        groups = _groups(run, request.query_params.get("id", ""))[::-1]
        known = [row for row in groups if row["known"]]
        found: dict[str, list[Any]] = {
            "number": [row["number"] for row in known],
            "rate": [row["solved"] / row["known"] for row in known],
            "reward": [row["reward"] for row in known],
        }
        return JSONResponse(found)


ROUTES = [
    Route("/runs/{run}/tasks", _page),
    Route("/runs/{run}/task", _one),
    Route("/runs/{run}/task/history", _history),
]
