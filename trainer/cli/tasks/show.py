"""`patchgym tasks show FILE [ID]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.syntax import Syntax

from patchgym.datasets.task import Task
from patchgym.trainer.errors import UserError
from patchgym.trainer.task_sets import load_task_set


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    arguments.add_argument("file", metavar="FILE", help="JSONL, bundled:train or bundled:heldout")
    arguments.add_argument("id", nargs="?", metavar="ID")
    arguments.add_argument("--json", action="store_true")


def run(known: argparse.Namespace) -> int:
    """Entry point."""
    return _show(load_task_set(known.file), known.id, as_json=known.json)


def find_task(tasks: Sequence[Task], name: str) -> Task:
    """The task called `name`; UserError names the nearest."""
    import difflib

    for task in tasks:
        if task.id == name:
            return task
    near = difflib.get_close_matches(name, [task.id for task in tasks], n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"no task {name!r} among these {len(tasks)}{hint}")


def _show(tasks: Sequence[Task], name: str | None, *, as_json: bool) -> int:
    chosen = tasks if name is None else [find_task(tasks, name)]
    if as_json:
        records = [dataclasses.asdict(task) for task in chosen]
        print(json.dumps(records if name is None else records[0], indent=2, default=dict))
        return 0
    console = Console()
    if name is None:
        for task in tasks:
            first = task.statement.splitlines()[0]
            console.print(f"{task.id}  {first}", markup=False, highlight=False, soft_wrap=True)
        return 0
    task = chosen[0]
    console.print(f"[bold]{task.id}[/bold] ({task.split})")
    console.print(task.statement, markup=False)
    for path, text in (task.files or {}).items():
        console.rule(path, align="left")
        console.print(Syntax(text, "python", theme="ansi_dark"))
    console.rule("gold patch", align="left")
    console.print(Syntax(task.gold_patch, "diff", theme="ansi_dark"))
    return 0
