"""Work that goes on for a while: a bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Self

import anyio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

QUIET = 60.0  # seconds without news after which a log gets to know who is being waited for


class WorkBar:
    """A context manager; what it is about, its subclasses say."""

    def __init__(self, console: Console, doing: str) -> None:
        self.doing = doing
        self.done = self.total = 0
        self.taken_over = 0
        """Of `done`, what an earlier part of the work had done."""
        self.counts: Counter[str] = Counter()
        self.running: dict[str, tuple[str, float]] = {}
        """By key: the name of what is under way, and its start."""
        self.console = console
        self._started = self._heard = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self._render,
                refresh_per_second=4, transient=True,
            )  # fmt: skip
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
            self._live = None

    def begin(self, total: int, taken_over: int) -> None:
        """The work is known; its clock starts."""
        self.total, self.done, self.taken_over = total, taken_over, taken_over
        self._started = self._heard = time.monotonic()

    def start(self, key: str, name: str) -> None:
        """One more is under way."""
        self.running[key] = name, time.monotonic()

    def end(self, key: str) -> float:
        """One more is done; the seconds it took."""
        _, began = self.running.pop(key)
        self._heard = time.monotonic()
        self.done += 1
        return self._heard - began

    def place(self) -> Text:
        """`[3/17] `, the begin of a line."""
        return Text(f"[{self.done:>{len(str(self.total))}}/{self.total}] ")

    def say(self, line: str | Text) -> None:
        """One line, above the bar."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    async def watch(self) -> None:
        """Where there is no bar, say now and then who is being waited for. Runs until cancelled."""
        while True:
            await anyio.sleep(QUIET / 4)
            if self._live is None and time.monotonic() - self._heard > QUIET and self.running:
                self._heard = time.monotonic()
                self.say(f"waiting for {self._waiting(limit=10)}")

    def _waiting(self, limit: int) -> str:
        now = time.monotonic()
        # Copied at once: the bar is drawn by another thread.
        running = sorted(dict(self.running).values(), key=lambda item: item[1])[:limit]
        return ", ".join(f"{name} ({now - began:.0f} s)" for name, began in running)

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        counts = Text("  ".join(f"{n} {name}" for name, n in sorted(self.counts.items())))
        bar.add_row(
            Text(self.doing, style="bold"),
            ProgressBar(total=max(1, self.total), completed=self.done, width=30),
            f"{self.done}/{self.total}", self._clock(), counts,
        )  # fmt: skip
        waiting = Text(self._waiting(limit=6), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(bar, waiting)

    def _clock(self) -> str:
        """Time taken, and the time left at the pace so far."""
        taken = time.monotonic() - self._started
        fresh = self.done - self.taken_over
        left = taken / fresh * (self.total - self.done) if fresh > 0 else 0.0
        return _minutes(taken) + (f", about {_minutes(left)} left" if left else "")


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
