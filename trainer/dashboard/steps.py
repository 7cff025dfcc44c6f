"""The table of a run's optimizer steps: what the plots show, as numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .listing import listing
from .pages import render
from .runs import open_run
from .series import Series, read_series
from .words import count, duration, number, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    title: str
    words: Callable[[float | None], str]


def _exact(value: float | None) -> str:
    return number(value, 4)


_COLUMNS = {
    "step": _Column(title="step", words=count),
    "reward": _Column(title="reward", words=lambda value: number(value, 3)),
    "pass_rate": _Column(title="pass rate", words=percent),
    "rollouts": _Column(title="rollouts", words=count),
    "rollout_p50": _Column(title="rollout p50", words=duration),
    "rollout_p95": _Column(title="p95", words=duration),
    "reward_p95": _Column(title="scoring p95", words=duration),
    "sampled_tokens": _Column(title="tokens", words=count),
    "learned": _Column(title="tokens learned", words=count),
    "staleness": _Column(title="staleness", words=number),
    "queue": _Column(title="queue", words=count),
    "slot_use": _Column(title="slots used", words=percent),
    "idle": _Column(title="idle", words=percent),
    "seconds": _Column(title="time", words=duration),
    "gradient_seconds": _Column(title="gradients", words=duration),
    "loss": _Column(title="loss", words=_exact),
    "grad_norm": _Column(title="norm", words=lambda value: number(value, 3)),
    "entropy": _Column(title="entropy", words=lambda value: number(value, 3)),
    "mismatch_kl": _Column(title="mismatch", words=lambda value: number(value, 5)),
    "learning_rate": _Column(
        title="rate", words=lambda value: number(None) if value is None else f"{value:.2g}"
    ),
}


def _page(request: Request) -> Response:
    with open_run(request) as run:
        series = read_series(run)
        asked = listing(request, _COLUMNS, "-step").of(series.length)
        shown = _columns(series)
        rows = [
            [column.words(series.columns[name][place]) for name, column in shown.items()]
            for place in _order(series, asked.sort, asked.descending)[
                asked.offset : asked.offset + asked.size
            ]
        ]
        return render(
            request, "steps.html", run=run, tab="steps", listing=asked, columns=shown, rows=rows
        )


def _columns(series: Series) -> dict[str, _Column]:
    """Those of which there is anything."""
    return {
        name: column
        for name, column in _COLUMNS.items()
        if any(value is not None for value in series.columns.get(name, ()))
    }


def _order(series: Series, name: str, descending: bool) -> list[int]:
    """Places of the steps in the order asked for; those without the number last."""
    values = series.columns.get(name) or [None] * series.length
    known = [place for place, value in enumerate(values) if value is not None]
    known.sort(key=lambda place: (values[place], place), reverse=descending)
    return known + [place for place, value in enumerate(values) if value is None]


ROUTES = [Route("/runs/{run}/steps", _page)]
