"""Runs beside each other: their curves in one plot, how they ended, and which settings differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .now import Measured, read_heldout
from .pages import render
from .runs import OpenRun, open_named, runs_in
from .series import Series, read_series
from .settings import settings_of
from .totals import Totals, read_totals
from .words import count, duration, number, percent, short_count

MOST = 8
"""Runs at once: as many as there are colours."""
CURVES = (
    "step", "reward", "pass_rate", "rollout_p95", "idle", "seconds", "sampled_tokens", "entropy",
    "loss",
)  # fmt: skip
"""Columns that are plotted."""
_OWN = frozenset({"run.name", "run.folder"})
"""Settings in which all runs differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a word for each run."""

    word: str
    values: Sequence[str]

    @property
    def differs(self) -> bool:
        """Not all the same."""
        return len(set(self.values)) > 1


def _page(request: Request) -> Response:
    asked = list(dict.fromkeys(request.query_params.getlist("run")))
    names = asked[:MOST]
    root = request.app.state.root
    facts, settings = [], []
    for name in names:
        with open_named(root, name) as run:
            facts.append(_facts(run))
            settings.append(settings_of(run))
    return render(
        request,
        "compare.html",
        names=names,
        too_many=len(asked) > MOST,
        most=MOST,
        facts=_rows(facts),
        settings=[row for row in _rows(settings) if row.differs and row.word not in _OWN],
        known=[folder.path.name for folder in reversed(runs_in(root))],
    )


def _rows(columns: Sequence[Mapping[str, str]]) -> list[Row]:
    words = dict.fromkeys(word for column in columns for word in column)
    return [
        Row(word=word, values=[column.get(word, "\N{EN DASH}") for column in columns])
        for word in words
    ]


def _facts(run: OpenRun) -> dict[str, str]:
    series, totals = read_series(run), read_totals(run)
    heldout = read_heldout(run, series.length) if run.kind == "training" else []
    account: Mapping[str, Any] = run.reader.meta("idle", {})
    return {
        "state": run.state,
        "steps": count(series.length),
        "time": duration(run.reader.meta("seconds")),
        **{f"held out {each.name}": _interval(each) for each in heldout},
        "reward, last steps": number(_late(series, "reward"), 3),
        "pass rate, last steps": percent(_late(series, "pass_rate"), 1),
        "learner idle": percent(account.get("idle_share")),
        "rollout p95, last steps": duration(_late(series, "rollout_p95")),
        **_costs(totals),
    }


def _interval(each: Measured) -> str:
    return f"{percent(each.pass_rate, 1)} ({percent(each.low)} to {percent(each.high)})"


def _late(series: Series, name: str) -> float | None:
    """The mean of the last tenth."""
    known = [value for value in series.columns.get(name, ()) if value is not None]
    late = known[-max(1, len(known) // 10) :]
    return sum(late) / len(late) if late else None


def _costs(totals: Totals) -> dict[str, str]:
    rollouts, sampled = totals.rollouts.total(), totals.sampled.total()
    resolved = sum(n for key, n in totals.rollouts.items() if key[1] == "resolved")
    return {
        "rollouts": count(rollouts),
        "tokens sampled": short_count(sampled),
        "tokens a resolved rollout": short_count(sampled / resolved if resolved else None),
        "rollout time": duration(sum(totals.seconds.values())),
    }


def _series(request: Request) -> Response:
    names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST]
    found = []
    for name in names:
        with open_named(request.app.state.root, name) as run:
            series = read_series(run)
            columns = {key: series.columns.get(key, []) for key in CURVES}
            found.append({"name": name, "columns": columns})
    return JSONResponse(found)


ROUTES = [Route("/compare", _page), Route("/compare/series", _series)]
