"""What mining shows: a line a candidate, on a terminal a bar below them, and a table at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from patchgym.datasets.mining import REASONS, Candidate, Decision, Mined
from patchgym.trainer.cli.work_bar import WorkBar


class MiningView(WorkBar):
    """The watcher of a mining run.

    `check` is asked after each failure of the machine, and raises when going on is of no use.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console, "reading history")
        self.check: Callable[[], Awaitable[object]] | None = None

    def looked(self, done: int, total: int) -> None:
        """So many commits were looked at."""
        self.done, self.total = done, total

    def planned(self, total: int, taken_over: int) -> None:
        """The candidates are known."""
        self.say(f"{self.total} commits, {total} candidates, {taken_over} of them decided before")
        self.doing = "mining"
        self.begin(total, taken_over)

    def started(self, candidate: Candidate) -> None:
        """One more is under way."""
        self.start(candidate.task_id, candidate.task_id)

    async def finished(self, candidate: Candidate, outcome: Decision | str) -> None:
        """One more is decided, or the machine failed it."""
        seconds = self.end(candidate.task_id)
        word, note, style = _told(outcome)
        self.counts["tasks" if word == "task" else "dropped"] += 1
        text = self.place()
        text.append(f"{word:<14}", style=style)
        text.append(f" {seconds:7.1f} s  {candidate.task_id}  ")
        text.append(note, style="dim")
        self.say(text)
        if isinstance(outcome, str) and self.check is not None:
            await self.check()


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
