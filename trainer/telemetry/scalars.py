"""Each step's numbers, sent to experiment trackers by a thread of their own.

    Training --step, row--> (bounded) --> thread --> TensorBoard | Weights & Biases | MLflow

A tracker that fails is told once and left out from then on; the run goes on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

WAITING = 10_000
"""Steps that may wait for a tracker."""
CLOSE_LIMIT = 15.0
"""Seconds that trackers may take to finish when the run is over."""


class ScalarSink(Protocol):
    """A tracker that is open."""

    name: str
    """For people."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers after `step` updates. May take long, and may raise anything."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class Scalars:
    """Hands each step's numbers to all of `sinks`."""

    def __init__(self, sinks: Sequence[ScalarSink], tell: Callable[[str], None]) -> None:
        self._sinks, self._tell = list(sinks), tell
        self._steps: queue.Queue[tuple[int, Mapping[str, object]] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="patchgym-scalars", daemon=True)
        self._thread.start()

    def step(self, step: int, found: Mapping[str, object]) -> None:
        """The numbers of a step's row, after `step` updates; never waits."""
        try:
            self._steps.put_nowait((step, found))
        except queue.Full:
            self._tell(f"the numbers of step {step} are not sent: the trackers are too far behind")

    def close(self) -> None:
        """Let all sinks finish, within seconds; else they are left as they are."""
        try:
            self._steps.put(None, timeout=CLOSE_LIMIT)
        except queue.Full:
            return
        self._thread.join(CLOSE_LIMIT)
        if self._thread.is_alive():
            names = ", ".join(sink.name for sink in self._sinks)
            self._tell(f"{names} did not finish in {CLOSE_LIMIT:.0f} s: left as it is")

    def _run(self) -> None:
        while True:
            item = self._steps.get()
            if item is None:
                break
            step, found = item
            write = partial(_write, step=step, values=flat(found))
            self._each(f"is left out from step {step} on", write)
        self._each("did not finish", lambda sink: sink.close())

    def _each(self, what: str, do: Callable[[ScalarSink], None]) -> None:
        for sink in tuple(self._sinks):
            try:
                do(sink)
            except Exception as error:  # a tracker's accident must not end the run
                self._sinks.remove(sink)
                first = (str(error).splitlines() or [""])[0]
                self._tell(f"{sink.name} {what}: {type(error).__name__}: {first}")


def _write(sink: ScalarSink, *, step: int, values: Mapping[str, float]) -> None:
    sink.write(step, values)


def flat(found: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """All numbers of nested mappings, by their path with slashes; lists and texts are left out."""
    numbers: dict[str, float] = {}
    for key, value in found.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            numbers[f"{prefix}{key}"] = float(value)
    return numbers
