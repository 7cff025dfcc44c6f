"""Measures one component, whatever it does: in a thread or a process, with a deadline.

    light ──► thread, left behind past its deadline ──┐
                  │ was late once, next time           ├──► checked ──► Score
    heavy, file.py ──► process, killed past its deadline ─┘

A score comes of every measuring. What goes wrong is the score's `detail`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_process
import anyio.to_thread

from .base import Fault, Score
from .component import Component, Measurement, UnknownValue
from .config import Part
from .registry import make_component
from .scene import Scene

EVIDENCE_LIMIT = 1 << 20  # characters of evidence, as JSON
FAULTS_LIMIT = 1000
REASON_LIMIT = 500  # characters
START_SECONDS = 60.0  # for a process to come up, which no component is blamed for
_ATTEMPTS = 2  # a process that breaks may have been killed by something else
T = TypeVar("T")


class Measurer:
    """Measures components, `processes` of them at most in processes at once. For one event loop."""

    def __init__(self, processes: int = 1) -> None:
        if processes < 1:
            raise ValueError(f"processes is {processes}: it must be >= 1")
        self._free = anyio.CapacityLimiter(processes)
        self._late: set[str] = set()

    async def measure(self, part: Part, scene: Scene) -> Score:
        """The score of `part`: unknown, with the reason, if it raises, returns nonsense, breaks its
        process, or takes longer than its deadline. Nothing but cancellation is raised."""
        started = time.monotonic()
        scene = _narrowed(part.component, scene)
        apart = needs_process(part) or part.name in self._late
        try:
            found = await (self._in_process if apart else self._in_thread)(part, scene)
        except Exception as error:  # such as no room for one more thread
            found = f"it could not be run: {_told(error)}"
        return _score(part, found, time.monotonic() - started)

    async def _in_thread(self, part: Part, scene: Scene) -> Measurement | str:
        with anyio.move_on_after(part.deadline):
            return await _in_daemon(lambda: take(part.component, scene))
        self._late.add(part.name)
        return _late(part)

    async def _in_process(self, part: Part, scene: Scene) -> Measurement | str:
        order = (part.source, dict(part.options), scene)
        try:
            # In a thread: a large scene takes long enough to hold up the event loop.
            packed = await anyio.to_thread.run_sync(pickle.dumps, order)
        except Exception as error:
            return f"it can't be handed to a process: {_told(error)}"
        async with self._free:
            for _ in range(_ATTEMPTS):
                try:
                    return await _ask_process(part, packed)
                except anyio.BrokenWorkerProcess:
                    continue
                except TimeoutError:
                    return f"no process came up within {START_SECONDS:g} s"
        return f"its process ended {_ATTEMPTS} times without an answer"


def needs_process(part: Part) -> bool:
    """Whether it is measured in a process: it takes processor time, or comes from a file."""
    return part.component.heavy or part.source.partition(":")[0].endswith(".py")


async def _ask_process(part: Part, packed: bytes) -> Measurement | str:
    alone = anyio.CapacityLimiter(1)  # how many there may be is decided by the caller
    with anyio.fail_after(START_SECONDS):
        await anyio.to_process.run_sync(_ready, cancellable=True, limiter=alone)
    with anyio.move_on_after(part.deadline):
        answer = await anyio.to_process.run_sync(_answer, packed, cancellable=True, limiter=alone)
        return await anyio.to_thread.run_sync(_unpacked, answer)
    return _late(part)


def _ready() -> None:
    """Nothing: what takes time is importing this module."""


def _answer(packed: bytes) -> bytes:
    """In the process: the measurement, or why there is none."""
    with _deaf_and_mute():
        try:
            source, options, scene = pickle.loads(packed)
            component = make_component(source, options)
        except Exception as error:
            found: Measurement | str = f"it can't be made in a process: {_told(error)}"
        else:
            found = take(component, scene)
        return pickle.dumps(found)


def _unpacked(answer: bytes) -> Measurement | str:
    found = pickle.loads(answer)
    return found if isinstance(found, Measurement | str) else "its process answered nonsense"


@contextlib.contextmanager
def _deaf_and_mute() -> Iterator[None]:
    """Keep what the component and its children print or read out of the talk with our parent."""
    kept = [os.dup(number) for number in (0, 1)]
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        for number in (0, 1):
            os.dup2(nothing, number)
        yield
    finally:
        for number, old in enumerate(kept):
            os.dup2(old, number)
            os.close(old)
        os.close(nothing)


async def _in_daemon(call: Callable[[], T]) -> T:
    """What `call` returns, from a thread that can be left behind and keeps no one from exiting."""
    done = anyio.Event()
    answer: list[T] = []
    async with anyio.from_thread.BlockingPortal() as portal:

        def work() -> None:
            answer.append(call())
            with contextlib.suppress(RuntimeError):  # nobody waits any more
                portal.start_task_soon(done.set)

        threading.Thread(target=work, name="patchgym-measure", daemon=True).start()
        await done.wait()
    return answer[0]


def take(component: Component, scene: Scene) -> Measurement | str:
    """The component's checked measurement, or why there is none. Raises nothing."""
    try:
        return _checked(component.measure(scene))
    except UnknownValue as reason:
        return _line(str(reason)) or "it does not say why"
    except BaseException as error:  # SystemExit too: it is one component's accident
        return f"it raised {_told(error)}"


def _checked(found: object) -> Measurement | str:
    if not isinstance(found, Measurement):
        return f"it returned a {type(found).__name__}, not a Measurement"
    value = found.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"its value is a {type(value).__name__}, not a number"
    if not math.isfinite(value) or not 0 <= value <= 1:
        return f"its value is {value:g}, which is not in 0 to 1"
    faults = tuple(found.faults)[:FAULTS_LIMIT]
    if not all(isinstance(fault, Fault) for fault in faults):
        return "its faults are no Faults"
    try:
        evidence = _as_json(found.evidence)
        _as_json({"": [[fault.message, fault.path, fault.line] for fault in faults]})
    except (TypeError, ValueError, RecursionError) as error:
        return f"its evidence is no JSON: {_told(error)}"
    return Measurement(
        value=float(value),
        evidence=evidence,
        faults=faults,
        detail=_line(str(found.detail)),
        tools=_line(str(found.tools)),
    )


def _as_json(evidence: Mapping[str, object]) -> dict[str, object]:
    """As it will be when it is read back."""
    text = json.dumps(dict(evidence), allow_nan=False)
    if len(text) > EVIDENCE_LIMIT:
        raise ValueError(f"it is over {EVIDENCE_LIMIT >> 20} MiB")
    back: dict[str, object] = json.loads(text)
    return back


def _narrowed(component: Component, scene: Scene) -> Scene:
    """Without what the component does not ask for."""
    return replace(
        scene,
        verdict=scene.verdict if "verdict" in component.needs else None,
        lint=scene.lint if "lint" in component.needs else None,
        conduct=scene.conduct if "conduct" in component.needs else None,
    )


def _score(part: Part, found: Measurement | str, seconds: float) -> Score:
    version = part.component.version
    if isinstance(found, str):
        return unknown_score(part, found, seconds)
    return Score(
        name=part.name,
        value=found.value,
        weight=part.signed,
        evidence=found.evidence,
        faults=found.faults,
        detail=found.detail,
        version=f"{version} {found.tools}".strip(),
        seconds=seconds,
    )


def unknown_score(part: Part, detail: str, seconds: float = 0.0) -> Score:
    """The score of what could not be measured."""
    return Score(
        name=part.name,
        value=None,
        weight=part.signed,
        status="unknown",
        detail=detail,
        version=part.component.version,
        seconds=seconds,
    )


def _late(part: Part) -> str:
    return f"not measured within {part.deadline:g} s"


def _told(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "no text"
    return _line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _line(text: str) -> str:
    return " ".join(text[: 2 * REASON_LIMIT].split())[:REASON_LIMIT]
