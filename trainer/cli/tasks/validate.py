"""`patchgym tasks validate FILE`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import anyio

from patchgym.datasets.task import Task
from patchgym.datasets.validate import Validation, validate_all
from patchgym.trainer.task_sets import load_task_set


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    arguments.add_argument("file", metavar="FILE")
    arguments.add_argument("--repeats", type=int, default=1, help="times each (default 1)")
    arguments.add_argument("--jobs", type=int, default=4, help="sandboxes at once (default 4)")
    arguments.add_argument("--image", default="auto")
    arguments.add_argument("--json", action="store_true")


def run(known: argparse.Namespace) -> int:
    """Entry point."""
    tasks = load_task_set(known.file)
    return anyio.run(_validate, tasks, known.image, known.repeats, known.jobs, known.json)


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
