"""`patchgym tasks import FORMAT FILE --out FILE`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from patchgym.datasets.recipes import load_recipes
from patchgym.datasets.task import Task, dump_tasks
from patchgym.trainer.cli.mirrors import read_mirrors
from patchgym.trainer.errors import UserError

if TYPE_CHECKING:
    from patchgym.datasets.adapters import Imported

NO_TASK = 1
"""Exit code when no row could be used."""


def add_arguments(arguments: argparse.ArgumentParser) -> None:
    """The action's own."""
    from patchgym.datasets.adapters import AUTO, FORMATS, OWN

    add = arguments.add_argument
    add("format", metavar="FORMAT", help=", ".join([AUTO, *FORMATS, OWN]))
    add("file", metavar="FILE", help="JSON Lines, JSON list, parquet, folder or hf:NAME[:SPLIT]")
    add("--out", type=Path, required=True, metavar="FILE", help="tasks.jsonl or tasks.parquet")
    add(
        "--mirror", action="extend", nargs="+", default=[], metavar="OWNER/NAME=PATH",
        help="a local clone of a repository",
    )  # fmt: skip
    add("--recipes", type=Path, metavar="FILE", help="how environments are built")
    add("--json", action="store_true")


def run(known: argparse.Namespace) -> int:
    """Entry point; exit code 1 when no row could be used, and nothing is written then."""
    from patchgym.datasets.adapters import import_tasks

    out: Path = known.out
    if out.is_dir() or not out.parent.is_dir():
        wrong = (
            "it is a folder; name a file" if out.is_dir() else f"no folder {out.parent}; make it"
        )
        raise UserError(f"--out {out}: {wrong}")
    found = import_tasks(
        known.format,
        known.file,
        recipes=load_recipes(known.recipes),
        mirrors=read_mirrors(known.mirror),
        repositories=out.parent / f"{out.stem}-repositories",
    )
    if found.tasks:
        dump_tasks([_beside(task, out) for task in found.tasks], out)
    if known.json:
        print(json.dumps(_document(found, out), indent=2))
    else:
        _print(found, out)
    return 0 if found.tasks else NO_TASK


def _beside(task: Task, out: Path) -> Task:
    """With its repository relative to the file, where it was made beside it."""
    folder = out.parent.resolve()
    if task.repository is None or not Path(task.repository).is_relative_to(folder):
        return task
    return replace(task, repository=str(Path(task.repository).relative_to(folder)))


def _document(found: Imported, out: Path) -> Mapping[str, object]:
    return {
        "out": str(out) if found.tasks else None,
        "rows": len(found.tasks) + len(found.reasons),
        "taken": len(found.tasks),
        "taken_ids": [task.id for task in found.tasks],
        "dropped": dict(found.reasons),
        "formats": dict(found.formats),
    }


def _print(found: Imported, out: Path) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=1000)  # nothing is cut or folded in a file
    rows = len(found.tasks) + len(found.reasons)
    formats = ", ".join(f"{name} {count}" for name, count in found.formats.items())
    line = Text.assemble((f"{len(found.tasks)} of {rows} rows taken", "bold"), f" ({formats})")
    line.append(f": {out}" if found.tasks else ": nothing written")
    console.print(line)
    if not found.reasons:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("dropped", justify="right", style="bold")
    table.add_column("why", ratio=3, overflow="fold")
    table.add_column("first of them", ratio=2, overflow="fold", style="dim")
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.reasons.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        table.add_row(str(len(names)), Text(reason), Text(names[0]))
    console.print(table)
