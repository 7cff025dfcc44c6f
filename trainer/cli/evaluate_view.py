"""What an evaluation shows while it goes: a line a verdict, and on a terminal a bar below them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import anyio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from patchgym.rewards import Verdict
from patchgym.rewards.evaluation import Attempt

QUIET = 60.0  # seconds without a verdict after which a log gets to know who is being waited for
_STYLES = {"resolved": "green", "unresolved": "red", "unknown": "yellow"}


class EvaluationView:
    """A context manager, and the watcher of an evaluation.

    `check` is asked after each failure of the machine, and raises when going on is of no use.
    """

    def __init__(self, console: Console, check: Callable[[], Awaitable[object]] | None = None):
        self.check = check
        self.done = 0
        self.total = 0
        self.taken_over = 0
        self._console = console
        self._counts: Counter[str] = Counter()
        self._running: dict[str, float] = {}
        """Key of each verdict under way, its task and its start."""
        self._names: dict[str, str] = {}
        self._started = self._heard = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, get_renderable=self._render,
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

    def planned(self, total: int, taken_over: int) -> None:
        """The work is known."""
        self.total, self.done, self.taken_over = total, taken_over, taken_over
        if taken_over:
            self.say(f"{taken_over} of {total} verdicts are there already")

    def started(self, attempt: Attempt) -> None:
        """One more is under way."""
        self._running[attempt.key] = time.monotonic()
        self._names[attempt.key] = attempt.task.id

    async def finished(self, attempt: Attempt, verdict: Verdict) -> None:
        """One more is kept."""
        began = self._running.pop(attempt.key)
        self._heard = time.monotonic()
        self.done += 1
        self._counts[verdict.status] += 1
        self._line(attempt, verdict, self._heard - began)
        if verdict.evidence == "infra" and self.check is not None:
            await self.check()

    def say(self, line: str) -> None:
        """One line, above the bar."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    async def watch(self) -> None:
        """Where there is no bar, say now and then who is being waited for. Runs until cancelled."""
        while True:
            await anyio.sleep(QUIET / 4)
            if self._live is None and time.monotonic() - self._heard > QUIET and self._running:
                self._heard = time.monotonic()
                self.say(f"waiting for {self._waiting(limit=10)}")

    def _line(self, attempt: Attempt, verdict: Verdict, seconds: float) -> None:
        width = len(str(self.total))
        text = Text(f"[{self.done:>{width}}/{self.total}] ")
        text.append(f"{verdict.status:<10}", style=_STYLES[verdict.status])
        text.append(f" {seconds:7.1f} s  {attempt.task.id}")
        if attempt.repeat:
            text.append(f" (repeat {attempt.repeat + 1})")
        if note := _note(verdict):
            text.append(f"  {note}", style="dim")
        self._console.print(text, highlight=False, soft_wrap=True)

    def _waiting(self, limit: int) -> str:
        now = time.monotonic()
        # Copied at once: the bar is drawn by another thread.
        running = sorted(dict(self._running).items(), key=lambda item: item[1])[:limit]
        return ", ".join(f"{self._names[key]} ({now - began:.0f} s)" for key, began in running)

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        counts = Text("  ".join(f"{n} {name}" for name, n in sorted(self._counts.items())))
        bar.add_row(
            Text("evaluating" if self.total else "starting", style="bold"),
            ProgressBar(total=max(1, self.total), completed=self.done, width=30),
            f"{self.done}/{self.total}", self._clock(), counts,
        )  # fmt: skip
        waiting = Text(self._waiting(limit=6), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(bar, waiting)

    def _clock(self) -> str:
        """Time taken, and the time left at the pace so far."""
        taken = time.monotonic() - self._started
        fresh = self.done - self.taken_over
        left = taken / fresh * (self.total - self.done) if fresh else 0.0
        return _clock(taken) + (f", about {_clock(left)} left" if left else "")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def _note(verdict: Verdict) -> str:
    """Why, in a few words, where the status alone does not say it."""
    parts: list[str] = []
    if verdict.evidence not in ("report", "junit"):
        parts.append(verdict.evidence)
    if verdict.detail:
        parts.append(" ".join(verdict.detail.split())[:160])
    disqualifying = [found.rule for found in verdict.tampering if found.disqualifies]
    parts += sorted(set(disqualifying))
    if verdict.flaky and verdict.evidence != "flaky":
        parts.append(f"{len(verdict.flaky)} flaky")
    return "; ".join(parts)
