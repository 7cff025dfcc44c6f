"""The live terminal view of a run; plain lines where the output is no terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .progress import Progress
from .statistics import PassRate

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The last `width` values in [0, 1] as block characters."""
    return "".join(_BARS[min(7, max(0, int(value * 8)))] for value in values[-width:])


class LiveView:
    """A context manager; `refresh` draws the progress once."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        if self._live is None:
            progress.listener = self._line

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.update(render(self._progress), refresh=True)
            self._live.__exit__(None, None, None)

    def refresh(self) -> None:
        """Draw, should there be a terminal."""
        if self._live is not None:
            self._live.update(render(self._progress), refresh=True)

    def _line(self, line: str) -> None:
        seconds = time.monotonic() - self._progress.started
        self._console.print(f"[{seconds:7.1f} s] {line}", markup=False, highlight=False)


def render(progress: Progress) -> RenderableType:
    """One picture of a run."""
    minutes, seconds = divmod(int(time.monotonic() - progress.started), 60)
    parts: list[RenderableType] = [_phase(progress)]
    if progress.evaluations:
        parts.append(_evaluations(progress.evaluations))
    if progress.history:
        parts.append(_curve(progress.history))
    if progress.phase == "training" or progress.stages:
        parts.append(_now(progress))
    title = f"[bold]patchgym[/bold] · {progress.title} · {minutes}:{seconds:02d}"
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")


def _phase(progress: Progress) -> RenderableType:
    line = Table.grid(padding=(0, 1))
    done, total = progress.done, progress.total
    if progress.phase == "training":
        done, total = progress.step, progress.steps
    line.add_row(Text(progress.phase, style="bold"), *_bar(done, total))
    return line


def _bar(done: int, total: int) -> list[RenderableType]:
    if total <= 0:
        return []
    return [ProgressBar(total=total, completed=done, width=30), Text(f"{done}/{total}")]


def _evaluations(evaluations: dict[str, PassRate]) -> RenderableType:
    text = Text("held out: ")
    for name, result in evaluations.items():
        low, high = result.interval
        text.append(f"{name} ", style="dim")
        text.append(f"{result.pass_rate:.1%}", style="bold green")
        text.append(f" [{low:.1%}, {high:.1%}]  ")
    return text


def _curve(history: Sequence[dict[str, Any]]) -> RenderableType:
    known = [row for row in history if row["reward"] is not None]
    if not known:
        return Text("")
    rewards = [float(row["reward"]) for row in known]
    rates = [float(row["pass_rate"]) for row in known]
    table = Table.grid(padding=(0, 2))
    table.add_row("reward", Text(sparkline(rewards), style="green"), f"{rewards[-1]:.3f}")
    table.add_row("pass rate", Text(sparkline(rates), style="green"), f"{rates[-1]:.1%}")
    return table


def _now(progress: Progress) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    stages = "  ".join(f"{stage} {count}" for stage, count in sorted(progress.stages.items()))
    table.add_row("rollouts in", stages or "-")
    table.add_row("speed", f"{progress.tokens_per_second:.0f} sampled tokens/s")
    if progress.phase == "training":
        dropped = ", ".join(f"{n} {reason}" for reason, n in progress.dropped.items()) or "none"
        table.add_row(
            "groups",
            f"queue {progress.queue_depth}/{progress.queue_capacity}, "
            f"{progress.open_groups} open, dropped: {dropped}",
        )
        table.add_row("learner", f"{progress.learner}; idle {idle_words(progress)}")
    return table


def idle_words(progress: Progress) -> str:
    """The idle share and its largest reasons."""
    reasons = [f"{share:.0%} {why}" for why, share in progress.idle_reasons.items()][:3]
    return f"{progress.idle_share:.0%}" + (
        f" (waiting on: {', '.join(reasons)})" if reasons else ""
    )
