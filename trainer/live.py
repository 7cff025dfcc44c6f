"""Views of a run while it goes: a picture on a terminal, plain lines, or lines for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live

from .live_picture import inert, picture
from .progress import Progress


class View(Protocol):
    """A context manager that is told to draw, now and then."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def refresh(self) -> None:
        """Draw, should there be anything to draw on."""
        ...


class PictureView:
    """Draws what `render` makes; where the output is no terminal, `say` writes lines instead."""

    def __init__(self, console: Console, render: Callable[[], RenderableType]) -> None:
        self._console, self._render = console, render
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._started = time.monotonic()

    @property
    def draws(self) -> bool:
        """There is a terminal."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self.refresh()
            self._live.__exit__(None, None, None)

    def refresh(self) -> None:
        """Draw, should there be a terminal."""
        if self._live is not None:
            self._live.update(self._render(), refresh=True)

    def say(self, line: str) -> None:
        """A line for a log; not on a terminal, where the picture says it."""
        if self._live is None:
            seconds = time.monotonic() - self._started
            words = f"[{seconds:7.1f} s] {inert(line)}"
            self._console.print(words, markup=False, highlight=False, soft_wrap=True)


class LiveView(PictureView):
    """The view of a training run."""

    def __init__(self, progress: Progress, console: Console) -> None:
        super().__init__(console, lambda: picture(progress.snapshot(), progress.history))
        if not self.draws:
            progress.listener = self.say


class JsonView:
    """One JSON document a line for programs: phases, lines, steps, evaluations, and once in a
    while a snapshot of everything."""

    EVERY = 10.0
    """Seconds between two snapshots."""

    def __init__(self, progress: Progress, write: Callable[[str], object] | None = None) -> None:
        """`write` takes a line with its end; by default, to the standard output."""
        self._progress = progress
        self._write = write or _to_stdout
        self._last = time.monotonic()
        progress.listener = lambda line: self.tell("line", {"text": line})
        progress.recorder = self.tell

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.tell("progress", self._progress.snapshot())

    def refresh(self) -> None:
        """A snapshot, when the last one is old enough."""
        if time.monotonic() - self._last >= self.EVERY:
            self._last = time.monotonic()
            self.tell("progress", self._progress.snapshot())

    def tell(self, kind: str, record: Mapping[str, Any]) -> None:
        """One document."""
        self._write(json.dumps({"time": round(time.time(), 3), "kind": kind, **record}) + "\n")


def _to_stdout(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()
