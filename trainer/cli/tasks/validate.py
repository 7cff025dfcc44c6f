"""`patchgym tasks validate FILE`: gold passes, the empty patch fails, as often as asked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from patchgym.datasets.task import Task, dump_tasks
from patchgym.datasets.trial import TrialConfig
from patchgym.datasets.validate import Validation, validate_all
from patchgym.trainer.errors import UserError
from patchgym.trainer.task_pool import open_task_pool
from patchgym.trainer.task_sets import load_task_set

Answers = dict[str, Validation]


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    arguments.add_argument("file", metavar="FILE", help="JSONL, bundled:train or bundled:heldout")
    arguments.add_argument("--repeats", type=int, default=1, help="times each (default 1)")
    arguments.add_argument("--shuffled", action="store_true", help="once more in another order")
    arguments.add_argument("--jobs", type=int, default=4, help="sandboxes at once (default 4)")
    arguments.add_argument("--timeout", type=float, help="seconds for one run of the tests")
    arguments.add_argument("--image", default="auto", help="for tasks that name none")
    arguments.add_argument("--out", type=Path, help="write the valid tasks, flaky tests set aside")
    arguments.add_argument("--json", action="store_true")


def run(known: argparse.Namespace) -> int:
    """Entry point; exit code 1 when a task is invalid, 2 when one could not be validated."""
    for name in ("repeats", "jobs"):
        if getattr(known, name) < 1:
            raise UserError(f"--{name} {getattr(known, name)}: give a number from 1")
    tasks = load_task_set(known.file)
    answers = anyio.run(_validate, tasks, known)
    if known.out is not None:
        dump_tasks((answers[task.id].task for task in tasks if answers[task.id].ok), known.out)
    if known.json:
        print(json.dumps(document(answers), indent=2))
    else:
        show(answers, Console())
    states = {answer.status for answer in answers.values()}
    return 1 if "invalid" in states else 2 if "unknown" in states else 0


async def _validate(tasks: Sequence[Task], known: argparse.Namespace) -> Answers:
    answers: Answers = {}
    columns = (TextColumn("validating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        line = progress.add_task("validating", total=len(tasks))

        def found(task: Task, answer: Validation) -> None:
            answers[task.id] = answer
            progress.advance(line)

        async with open_task_pool(tasks, image=known.image, size=known.jobs) as opened:
            await validate_all(
                tasks,
                opened.pool,
                found,
                jobs=known.jobs,
                repeats=known.repeats,
                shuffled=known.shuffled,
                config=TrialConfig(images=opened.images, timeout=known.timeout),
            )
    return answers


def document(answers: Mapping[str, Validation]) -> dict[str, object]:
    """What --json prints."""
    return {
        "valid": sum(answer.ok for answer in answers.values()),
        "invalid": {
            name: answer.reason for name, answer in answers.items() if answer.status == "invalid"
        },
        "unknown": {
            name: answer.reason for name, answer in answers.items() if answer.status == "unknown"
        },
        "flaky": {
            name: {test: [flake.rate, *flake.interval] for test, flake in answer.flaky.items()}
            for name, answer in answers.items()
            if answer.flaky
        },
        "symptoms": {
            name: [[each.kind, each.test, each.detail] for each in answer.symptoms]
            for name, answer in answers.items()
            if answer.symptoms
        },
    }


def show(answers: Mapping[str, Validation], console: Console) -> None:
    """A line for each task that is not plainly valid, and the counts."""
    odd = [name for name, answer in answers.items() if not answer.ok or _notes(answer)]
    if odd:
        table = Table(box=None, pad_edge=False)
        for title in ("task", "verdict", "seconds", "notes"):
            table.add_column(title, overflow="fold", no_wrap=title == "verdict")
        for name in odd:
            answer = answers[name]
            notes = [answer.reason.removeprefix(f"{name}: ")] if answer.reason else []
            seconds = f"{answer.seconds:.1f}"
            table.add_row(name, answer.status, seconds, "\n".join([*notes, *_notes(answer)]))
        console.print(table, highlight=False, markup=False)
    valid = sum(answer.ok for answer in answers.values())
    console.print(f"{valid} of {len(answers)} tasks are valid", highlight=False)


def _notes(answer: Validation) -> list[str]:
    flaky = [
        f"flaky ({flake.failures} of {flake.runs} runs failed): {test}"
        for test, flake in answer.flaky.items()
    ]
    return flaky + [
        f"{each.kind}: {each.test + ': ' if each.test else ''}{each.detail}"
        for each in answer.symptoms
    ]
