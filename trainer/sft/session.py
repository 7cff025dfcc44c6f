"""A supervised run: set-up, signals, and what is said at its end."""

from __future__ import annotations

from typing import Any

import anyio
from rich.console import Console

from patchgym.trainer.config import config_to_toml
from patchgym.trainer.errors import RunError
from patchgym.trainer.run_folder import locked
from patchgym.trainer.stopping import watch_signals

from .config import SftConfig, as_run_config
from .folder import SftFolder, create_supervised
from .opening import Opened, examine, open_supervised_run
from .picture import data_lines
from .record import read_facts, read_summary
from .running import Session, run_session
from .view import SftProgress, SftView, print_summary, write_curve


def train(config: SftConfig, resume: SftFolder | None = None) -> int:
    """Run a (pinned) `config` to the last step, print the summary; the exit code (0, 130 stopped).

    Raises UserError for what can't be used, RunStopped when a loss is not finite.
    """
    console = Console()
    opened = open_supervised_run(config, lambda words: _print(console, words))
    for line in data_lines(opened.facts()["data"]):
        _print(console, line)
    if resume is not None:
        _check_same_data(resume, opened)
    folder = resume or create_supervised(config, opened.plan.steps)
    with locked(folder.run):
        folder.write_config(config)
        folder.run.config.write_text(config_to_toml(as_run_config(config, opened.plan.steps)))
        progress = SftProgress(title=folder.run.path.name, steps=opened.plan.steps)
        view = SftView(progress, console)
        session = Session(
            opened=opened, folder=folder, resume=resume is not None, progress=progress, view=view
        )
        if resume is not None:
            session.earlier = read_summary(folder.run)
        with view:
            anyio.run(_supervise, session)
        summary = read_summary(folder.run)
        if summary["history"]:
            write_curve(summary, folder.run.curve)
            summary["curve"] = str(folder.run.curve)
    print_summary(summary, console)
    _print(console, _farewell(session, folder.run.path.name))
    return 130 if session.stopped else 0


def dry_run(config: SftConfig) -> dict[str, Any]:
    """Read the data of a (pinned) `config` and say what would run; nothing is trained or written.

    Returns the picture, with `lines` for people.
    """
    record, lines = examine(config, lambda words: None)
    words = [*data_lines(record["data"]), *lines, "a real run would start now"]
    return {**record, "lines": words}


def _print(console: Console, words: str) -> None:
    console.print(words, soft_wrap=True, markup=False, highlight=False)


def _farewell(session: Session, name: str) -> str:
    if session.stopped:
        return f"stopped; go on with: patchgym sft --resume {name}"
    model = session.opened.config.run.export or "FOLDER (made with --resume and --export)"
    return (
        f"again: patchgym runs show {name}; evaluate it: patchgym evaluate --policy run:{name} "
        f"--tasks bundled:heldout; start from it: patchgym train --model.path {model}"
    )


def _check_same_data(folder: SftFolder, opened: Opened) -> None:
    facts = read_facts(folder.run)
    before, now = facts["data"]["digest"], opened.dataset.digest
    if before != now:
        raise RunError(
            f"{folder.run.path}: the data is not what the run began with ({before}, now {now}): "
            "put the sources back, or start a new run"
        )


async def _supervise(session: Session) -> None:
    """The run beside its view and its signal watch; all end together."""
    async with anyio.create_task_group() as group:
        group.start_soon(_draw, session.view)
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, session.stop)
            await run_session(session)
        group.cancel_scope.cancel()


async def _draw(view: SftView) -> None:
    while True:
        view.refresh()
        await anyio.sleep(0.5)
