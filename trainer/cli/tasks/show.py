"""`patchgym tasks show FILE [ID]`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence

from patchgym.datasets.task import Task
from patchgym.trainer.errors import UserError
from patchgym.trainer.task_sets import load_task_set

from .picture import show_list, show_task

FIRST = 10  # tests of each list


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    add = arguments.add_argument
    add("file", metavar="FILE", help="JSONL, parquet, bundled:train or bundled:heldout")
    add("id", nargs="?", metavar="ID")
    add("--tests", type=int, default=FIRST, metavar="N", help="tests of each list (default 10)")
    add("--json", action="store_true")


def run(known: argparse.Namespace) -> int:
    """Entry point."""
    tasks = load_task_set(known.file)
    if known.tests < 0:
        raise UserError(f"--tests {known.tests}: give 0 or more")
    chosen = tasks if known.id is None else [find_task(tasks, known.id)]
    if known.json:
        records = [dataclasses.asdict(task) for task in chosen]
        print(json.dumps(records if known.id is None else records[0], indent=2, default=dict))
    elif known.id is None:
        show_list(tasks)
    else:
        show_task(chosen[0], tests=known.tests)
    return 0


def find_task(tasks: Sequence[Task], name: str) -> Task:
    """The task called `name`; UserError names the nearest."""
    import difflib

    for task in tasks:
        if task.id == name:
            return task
    near = difflib.get_close_matches(name, [task.id for task in tasks], n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"no task {name!r} among these {len(tasks)}{hint}")
