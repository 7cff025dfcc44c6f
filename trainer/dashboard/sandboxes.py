"""The sandboxes of this machine: containers by label, whose they are, and who waits for one."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from patchgym.sandbox import Owner, PatchgymError
from patchgym.sandbox.engine import Engine
from patchgym.sandbox.reaper import KIT, KIT_NAME, current_owner, is_dead
from patchgym.trainer.errors import UserError
from patchgym.trainer.heartbeat import pulse

from .pages import render, text
from .runs import open_folder, runs_in
from .series import read_series
from .times import Spread, stage_spreads

_EVERY = 2000
"""Milliseconds between two looks of the browser."""
_PATIENCE = 5.0
"""Seconds in which the engine is to answer."""
_LOOKED_INTO = 64
"""Containers whose details are asked for."""
_STAGE = "stage lease wait"
_RUNS = 10
"""Newest runs whose waits are told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A container of ours."""

    name: str
    state: str
    """running, exited, ...; `abandoned` when its owner is gone."""
    image: str
    """Empty where it was not asked for."""
    since: str
    """When it was started, as the engine has it."""
    memory: int | None
    """Bytes that it may take."""
    slot: str
    """Of its pool."""
    owner: str
    """Host and process."""
    run: str
    """The run that its owner runs; empty when that is none of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What a run waited for sandboxes."""

    run: str
    state: str
    slots: Any
    """As set."""
    share: float
    """Of the learner's time that was spent waiting for a lease, 0 to 1."""
    spread: Spread | None
    """Of the lease waits in the last steps; None of runs that don't say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    engine: str
    problem: str
    sandboxes: Sequence[Sandbox]
    counts: Mapping[str, int]
    more: int


async def _page(request: Request) -> Response:
    context = await _context(request)
    return await anyio.to_thread.run_sync(lambda: render(request, "sandboxes.html", **context))


async def _now(request: Request) -> Response:
    context = await _context(request)
    if context["seen"] == request.query_params.get("seen"):
        return Response(status_code=204)
    part = await anyio.to_thread.run_sync(lambda: text(request, "sandbox_rows.html", **context))
    return JSONResponse({"seen": context["seen"], "every": _EVERY, "parts": {"part-rows": part}})


async def _context(request: Request) -> dict[str, Any]:
    root = request.app.state.root
    runs = await anyio.to_thread.run_sync(_owners, root)
    found = await _ask(runs)
    waits = await anyio.to_thread.run_sync(_waits, root)
    seen = hashlib.sha256(repr((found, waits)).encode()).hexdigest()[:16]
    return {"found": found, "waits": waits, "seen": seen, "every": _EVERY}


async def _ask(runs: Mapping[Owner, str]) -> _Found:
    """What the engine says; never an error: that it doesn't answer is what the page then says."""
    engine = Engine(timeout=_PATIENCE)
    problem, sandboxes, more, counts = "", [], 0, Counter[str]()
    try:
        with anyio.fail_after(2 * _PATIENCE):
            listed = await engine.containers({KIT: KIT_NAME})
            here = current_owner()
            counts.update(_state(each.state, Owner.of(each.labels), here) for each in listed)
            shown = sorted(listed, key=lambda each: (each.state != "running", each.name))
            more = max(0, len(shown) - _LOOKED_INTO)
            details = await _details(engine, [each.name for each in shown[:_LOOKED_INTO]])
            for each in shown[:_LOOKED_INTO]:
                owner = Owner.of(each.labels)
                facts = details.get(each.name) or {}
                sandboxes.append(
                    Sandbox(
                        name=each.name,
                        state=_state(each.state, owner, here),
                        image=_image(str(facts.get("Config", {}).get("Image", ""))),
                        since=str(facts.get("State", {}).get("StartedAt", ""))[:19],
                        memory=facts.get("HostConfig", {}).get("Memory") or None,
                        slot=each.labels.get("patchgym.slot", ""),
                        owner="" if owner is None else f"{owner.host}, process {owner.pid}",
                        run="" if owner is None else runs.get(owner, ""),
                    )
                )
    except TimeoutError:
        problem = f"no answer within {2 * _PATIENCE:g} s"
    except PatchgymError as error:
        problem = str(error)
    finally:
        engine.close()
    return _Found(
        engine=engine.url, problem=problem, sandboxes=sandboxes, counts=dict(counts), more=more
    )


async def _details(engine: Engine, names: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    found: dict[str, dict[str, Any] | None] = {}

    async def one(name: str) -> None:
        found[name] = await engine.inspect(name)

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(one, name)
    return found


def _image(name: str) -> str:
    """An image without a tag is known by its digest: the part that people use."""
    return name.removeprefix("sha256:")[:12] if name.startswith("sha256:") else name


def _state(state: str, owner: Owner | None, here: Owner) -> str:
    if owner is not None and is_dead(owner, here, same_machine=owner.host == here.host):
        return "abandoned"
    return state


def _owners(root: Path) -> dict[Owner, str]:
    """Names of the newest runs by the process that runs them, or ran them last. Blocking."""
    found: dict[Owner, str] = {}
    for folder in runs_in(root)[-_RUNS:]:
        known = pulse(folder)
        if known is not None:
            found[known.owner] = folder.path.name
    return found


def _waits(root: Path) -> list[Waits]:
    """What the newest runs waited for a lease, from their ledgers. Blocking."""
    found = []
    for folder in reversed(runs_in(root)[-_RUNS:]):
        try:
            with open_folder(folder) as run:
                if run.kind != "training":
                    continue
                shares = run.reader.meta("idle", {}).get("idle_reasons", {})
                section = run.settings.get("sandbox")
                spreads = stage_spreads(read_series(run), most=100)
                found.append(
                    Waits(
                        run=run.name,
                        state=run.state,
                        slots=section.get("slots") if isinstance(section, dict) else None,
                        share=sum(v for name, v in shares.items() if "lease" in name),
                        spread=next((each for each in spreads if each.name == _STAGE), None),
                    )
                )
        except UserError:
            continue
    return found


ROUTES = [Route("/sandboxes", _page), Route("/sandboxes/now", _now)]
