"""What an injection shows: a bar on a terminal, else a line a batch; at the end a table."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from patchgym.datasets.injection import Injection, Statistics


class InjectView:
    """A context manager that hears how an injection goes."""

    def __init__(self, console: Console, count: int) -> None:
        """`count` is how many tasks are wanted."""
        self._console = console
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=count)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def stage(self, text: str) -> None:
        """What is done now."""
        self._bar.update(self._task, description=text)
        if not self._console.is_terminal:
            self.say(text)

    def counted(self, statistics: Statistics) -> None:
        """A batch is through."""
        self._bar.update(self._task, completed=statistics.kept)
        if not self._console.is_terminal:
            seconds = time.monotonic() - self._started
            self.say(f"{statistics.kept} tasks of {statistics.tried} tried ({seconds:.0f} s)")

    def say(self, line: str) -> None:
        """One line, above the bar."""
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_injection(injection: Injection, console: Console) -> None:
    """How mutants ended, and what was tried and kept by kind and by file."""
    from patchgym.datasets.injection import ENDINGS

    statistics = injection.statistics
    console.print(
        f"{statistics.kept} tasks of {statistics.tried} mutants tried; "
        f"{statistics.places} places in code that {statistics.tests} tests run",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("ended")
    table.add_column("mutants", justify="right")
    for ending, text in ENDINGS.items():
        if statistics.endings[ending]:
            table.add_row(text, str(statistics.endings[ending]))
    console.print(table)
    for title, rows in (("kind", statistics.kinds), ("file", statistics.files)):
        table = Table(box=None, pad_edge=False)
        table.add_column(title)
        table.add_column("tried", justify="right")
        table.add_column("kept", justify="right")
        for name in sorted(rows, key=lambda name: (-rows[name]["kept"], name)):
            table.add_row(name, str(rows[name].total()), str(rows[name]["kept"]))
        console.print(table)
