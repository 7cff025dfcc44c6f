"""What mining shows: a line a candidate, on a terminal a bar below them, and a table at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from patchgym.datasets.mining import REASONS, Candidate, Decision, Mined

QUIET = 60.0  # seconds without a decision after which a log gets to know who is being waited for


class MiningView:
    """A context manager, and the watcher of a mining run.

    `check` is asked after each failure of the machine, and raises when going on is of no use.
    """

    def __init__(self, console: Console) -> None:
        self.check: Callable[[], Awaitable[object]] | None = None
        self._console = console
        self._done = self._total = self._taken_over = 0
        self._doing = "reading history"
        self._counts: Counter[str] = Counter()
        self._running: dict[str, float] = {}
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

    def looked(self, done: int, total: int) -> None:
        """So many commits were looked at."""
        self._done, self._total = done, total

    def planned(self, total: int, taken_over: int) -> None:
        """The candidates are known."""
        self.say(f"{self._total} commits, {total} candidates, {taken_over} of them decided before")
        self._doing, self._total, self._done, self._taken_over = (
            "mining", total, taken_over, taken_over,
        )  # fmt: skip
        self._started = self._heard = time.monotonic()

    def started(self, candidate: Candidate) -> None:
        """One more is under way."""
        self._running[candidate.task_id] = time.monotonic()

    async def finished(self, candidate: Candidate, outcome: Decision | str) -> None:
        """One more is decided, or the machine failed it."""
        began = self._running.pop(candidate.task_id)
        self._heard = time.monotonic()
        self._done += 1
        word, note, style = _told(outcome)
        self._counts["tasks" if word == "task" else "dropped"] += 1
        width = len(str(self._total))
        text = Text(f"[{self._done:>{width}}/{self._total}] ")
        text.append(f"{word:<14}", style=style)
        text.append(f" {self._heard - began:7.1f} s  {candidate.task_id}  ")
        text.append(note, style="dim")
        self._console.print(text, highlight=False, soft_wrap=True)
        if isinstance(outcome, str) and self.check is not None:
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

    def _waiting(self, limit: int) -> str:
        now = time.monotonic()
        # Copied at once: the bar is drawn by another thread.
        running = sorted(dict(self._running).items(), key=lambda item: item[1])[:limit]
        return ", ".join(f"{name} ({now - began:.0f} s)" for name, began in running)

    def _render(self) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        counts = Text("  ".join(f"{n} {name}" for name, n in sorted(self._counts.items())))
        bar.add_row(
            Text(self._doing, style="bold"),
            ProgressBar(total=max(1, self._total), completed=self._done, width=30),
            f"{self._done}/{self._total}", self._clock(), counts,
        )  # fmt: skip
        waiting = Text(self._waiting(limit=6), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(bar, waiting)

    def _clock(self) -> str:
        """Time taken, and the time left at the pace so far."""
        taken = time.monotonic() - self._started
        fresh = self._done - self._taken_over
        left = taken / fresh * (self._total - self._done) if fresh > 0 else 0.0
        return _clock(taken) + (f", about {_clock(left)} left" if left else "")


def print_mined(mined: Mined, out: Path, held: int, console: Console) -> None:
    """The table at the end."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(justify="right")
    looked = len(mined.decisions) + len(mined.undecided)
    table.add_row(str(looked), "commits", "")
    table.add_row(str(mined.candidates), "candidates", f"{mined.taken_over} decided before")
    table.add_row(str(len(mined.rows)), "tasks", "")
    for reason, number in mined.dropped.items():
        table.add_row(str(number), reason, Text(REASONS.get(reason, ""), style="dim"))
    if mined.undecided:
        table.add_row(str(len(mined.undecided)), "undecided", "the machine failed: tried again")
    console.print(table)
    line = f"{held} tasks in {out}; every commit's reason in {out}.work/report.json"
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _told(outcome: Decision | str) -> tuple[str, str, str]:
    """A word, a note and a style."""
    if isinstance(outcome, str):
        return "machine", outcome, "yellow"
    if outcome.dropped is not None:
        return outcome.dropped.reason, outcome.dropped.detail[:160], "red"
    task = outcome.task or {}
    counts = [len(task.get(name, ())) for name in ("fail_to_pass", "pass_to_pass", "flaky")]
    return "task", "{} fail to pass, {} pass to pass, {} flaky".format(*counts), "green"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
