"""A supervised run for people: the live view, the summary, the curve."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from patchgym.trainer.live import PictureView
from patchgym.trainer.live_picture import sparkline


@dataclass(slots=True, kw_only=True)
class SftProgress:
    """What a run shows of itself while it goes; written by the run, read by the view."""

    title: str = ""
    phase: str = "starting"
    step: int = 0
    steps: int = 0
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=40))
    """Of the last updates of this process, nats a token."""
    rate: float = 0.0
    """Trained tokens a second, those of the prompts included."""
    heldout: list[tuple[int, float, float]] = field(default_factory=list)
    """Step, loss and accuracy of each measurement."""
    started: float = field(default_factory=time.monotonic)


class SftView(PictureView):
    """The view of a supervised run."""

    def __init__(self, progress: SftProgress, console: Console) -> None:
        super().__init__(console, lambda: render(progress))


def render(progress: SftProgress) -> RenderableType:
    """One picture of a run."""
    minutes, seconds = divmod(int(time.monotonic() - progress.started), 60)
    line = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(1, progress.steps), completed=progress.step, width=30)
    line.add_row(Text(progress.phase, style="bold"), bar, Text(f"{progress.step}/{progress.steps}"))
    parts: list[RenderableType] = [line]
    if progress.losses:
        parts.append(_losses(progress))
    for step, loss, accuracy in progress.heldout:
        parts.append(Text(f"held out at step {step}: {heldout_words(loss, accuracy)}"))
    title = f"[bold]patchgym sft[/bold] · {progress.title} · {minutes}:{seconds:02d}"
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan")


def _losses(progress: SftProgress) -> RenderableType:
    highest = max(*progress.losses, 1e-9)
    shares = [loss / highest for loss in progress.losses]
    table = Table.grid(padding=(0, 2))
    table.add_row(
        "loss", Text(sparkline(shares), style="green"), f"{progress.losses[-1]:.4f}",
        f"{progress.rate:.0f} tokens/s",
    )  # fmt: skip
    return table


def heldout_words(loss: float, accuracy: float) -> str:
    """A measurement in words."""
    return f"loss {loss:.4f} a token, {accuracy:.1%} of tokens right"


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """The summary for people."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")  # paths are for copying: none is cut short
    data, history = summary["data"], summary["history"]
    table.add_row("run", summary["run"])
    table.add_row(
        "steps",
        f"{summary['steps']} of {summary['planned_steps']} ({summary['state']}), "
        f"{summary['seconds'] / 60:.1f} minutes",
    )
    if data:
        table.add_row("trained on", data_words(data["train"]))
        table.add_row("held out", data_words(data["heldout"]))
    if history:
        table.add_row("loss", f"{history[0]['loss']:.4f} -> {history[-1]['loss']:.4f} a token")
    for row in summary["heldout"]:
        words = heldout_words(row["loss"], row["accuracy"])
        table.add_row(f"held out at {row['step']}", f"{words}, {row['tokens']:,} tokens")
    for name in ("checkpoints", "curve", "export"):
        if summary[name]:
            table.add_row(name, summary[name])
    console.print(table, soft_wrap=True, highlight=False)


def data_words(part: Mapping[str, int]) -> str:
    """Counts of conversations in words."""
    return (
        f"{part['conversations']} conversations about {part['tasks']} tasks, "
        f"{part['tokens']:,} tokens, {part['learned']:,} of them learned"
    )


def write_curve(summary: Mapping[str, Any], path: Path) -> None:
    """The losses by step as a PNG (blocking; a second)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.subplots()
    history: Sequence[Mapping[str, Any]] = summary["history"]
    steps = [row["step"] + 1 for row in history]
    axes.plot(steps, [row["loss"] for row in history], label="trained, before the update")
    rows: Sequence[Mapping[str, Any]] = summary["heldout"]
    if rows:
        axes.plot([r["step"] for r in rows], [r["loss"] for r in rows], "D-", label="held out")
    axes.set(xlabel="step", ylabel="nats a token", title="patchgym sft: loss")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    partial = path.with_suffix(".partial.png")
    figure.savefig(partial)
    partial.replace(path)
