"""A run's settings, and where they are not the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from patchgym.trainer.config import RunConfig

from .pages import render
from .runs import OpenRun, open_run


def flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values."""
    for name, value in settings.items():
        key = f"{above}.{name}" if above else str(name)
        if isinstance(value, Mapping) and value:
            yield from flat(value, key)
        else:
            yield key, value


def words_of(value: object) -> str:
    """A value as in TOML, nearly."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(words_of(each) for each in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_of(run: OpenRun) -> dict[str, str]:
    """All of a run's settings by dotted key."""
    return {key: words_of(value) for key, value in flat(run.settings)}


def _page(request: Request) -> Response:
    with open_run(request) as run:
        usual = {key: words_of(value) for key, value in flat(asdict(RunConfig()))}
        rows = [
            (key, value, usual.get(key) if run.kind != "supervised" else None)
            for key, value in settings_of(run).items()
        ]
        return render(request, "settings.html", run=run, tab="settings", sections=_by_section(rows))


def _by_section(
    rows: list[tuple[str, str, str | None]],
) -> dict[str, list[tuple[str, str, str | None]]]:
    found: dict[str, list[tuple[str, str, str | None]]] = {}
    for key, value, usual in rows:
        section, _, name = key.partition(".")
        found.setdefault(section, []).append((name or section, value, usual))
    return found


ROUTES = [Route("/runs/{run}/settings", _page)]
