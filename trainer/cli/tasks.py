"""`patchgym tasks`: look at tasks, and validate them in sandboxes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import anyio
from rich.console import Console
from rich.syntax import Syntax

from patchgym.datasets.task import Task
from patchgym.datasets.validate import Validation, validate_all
from patchgym.trainer.errors import UserError
from patchgym.trainer.task_sets import load_task_set

from .main import parser


def run(words: Sequence[str]) -> int:
    """Entry point."""
    arguments = parser("tasks")
    actions = arguments.add_subparsers(dest="action", required=True)
    show = actions.add_parser("show", help="list the tasks of a file, or show one")
    show.add_argument("file", metavar="FILE", help="JSONL, bundled:train or bundled:heldout")
    show.add_argument("id", nargs="?", metavar="ID")
    show.add_argument("--json", action="store_true")
    validate = actions.add_parser("validate", help="gold passes, the empty patch fails")
    validate.add_argument("file", metavar="FILE")
    validate.add_argument("--repeats", type=int, default=1, help="times each (default 1)")
    validate.add_argument("--jobs", type=int, default=4, help="sandboxes at once (default 4)")
    validate.add_argument("--image", default="auto")
    validate.add_argument("--json", action="store_true")
    known = arguments.parse_args(words)
    tasks = load_task_set(known.file)
    if known.action == "show":
        return _show(tasks, known.id, as_json=known.json)
    return anyio.run(_validate, tasks, known.image, known.repeats, known.jobs, known.json)


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


async def _validate(
    tasks: Sequence[Task], image: str, repeats: int, jobs: int, as_json: bool
) -> int:
    from patchgym.sandbox import Pool, SandboxSpec, ensure_base

    tag = await ensure_base() if image == "auto" else image
    bad: dict[str, str] = {}

    def found(task: Task, validation: Validation) -> None:
        if not validation.ok:
            bad[task.id] = validation.reason

    async with Pool(SandboxSpec(image=tag), size=jobs) as pool:
        await validate_all(tasks, pool, found, jobs=jobs, repeats=repeats)
    if as_json:
        print(json.dumps({"valid": len(tasks) - len(bad), "invalid": bad}, indent=2))
    else:
        for reason in bad.values():
            print(reason)
        print(f"{len(tasks) - len(bad)} of {len(tasks)} tasks are valid")
    return 1 if bad else 0
