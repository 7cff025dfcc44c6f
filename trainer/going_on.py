"""What is done to a run's folder before it goes on, when more is asked than to go on.

    --from best|STEP    newer checkpoints are set aside: the run is then as one that was killed
                        right after that checkpoint, and what followed is done again
    --readmit ID|all    tasks that are left out are taken in again

Checkpoints go one by one, the newest first, each by renaming its folder, so that a kill in between
leaves a run that goes on from the newest one that is still there. The ledger is not touched here:
`restore_groups` and `Ledger.restore` make of its groups what they were at that checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .checkpoint_files import damage, read_value
from .checkpoint_ranking import best_step
from .errors import RunError
from .ledger import Ledger, LedgerReader
from .quarantine import to_readmit
from .resumable import Change
from .run_facts import checkpoint_steps
from .run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingOn:
    """How a run is to go on."""

    origin: str = ""
    """`best`, or the step of a checkpoint; empty for the newest one."""
    readmit: str = ""
    """Ids of tasks after commas, or `all`."""
    changes: Sequence[Change] = ()
    """Settings that differ from those before."""


def prepare(asked: GoingOn, folder: RunFolder, ledger: Ledger) -> list[str]:
    """Do what is asked; lines about it. RunError, with nothing changed, for what can't be. Blocks,
    and no other thread may use the ledger meanwhile."""
    with LedgerReader(folder.ledger) as reader:
        readmitted = to_readmit(asked.readmit, reader.left_out()) if asked.readmit else ()
    lines: list[str] = []
    if asked.origin:
        step, gone = go_back(folder, asked.origin)
        ledger.event("went_back", step=step, asked=asked.origin, set_aside=gone)
        lines.append(_line(folder, step, gone))
    for task in readmitted:
        ledger.readmit(task)
        ledger.event("readmitted", task=task)
        lines.append(f"{task} is taken in again")
    if asked.changes:
        changed = [[change.key, repr(change.old), repr(change.new)] for change in asked.changes]
        ledger.event("changed", settings=changed)
    return lines


def go_back(folder: RunFolder, which: str) -> tuple[int, list[int]]:
    """Set the checkpoints aside that are newer than `which` (`best`, or a step); its step and
    theirs. RunError when it is not there, or damaged."""
    steps = checkpoint_steps(folder)
    step = _chosen(folder, which, steps)
    if words := damage(folder.checkpoints / str(step)):
        raise RunError(f"{folder.checkpoints / str(step)}: damaged: {words}; choose another")
    newer = [each for each in reversed(steps) if each > step]
    try:
        for each in newer:
            aside = folder.path / "set-aside"
            aside.mkdir(exist_ok=True)
            (folder.checkpoints / str(each)).rename(_free(aside, each))
    except OSError as error:
        raise RunError(f"{folder.checkpoints}: can't be changed: {error}") from None
    return step, newer


def _chosen(folder: RunFolder, which: str, steps: Sequence[int]) -> int:
    found: int | None = None
    if which == "best":
        values = {step: read_value(folder.checkpoints / str(step)) for step in steps}
        found = best_step({step: value for step, value in values.items() if value})
    elif which.isdecimal() and int(which) in steps:
        found = int(which)
    if found is None:
        there = ", ".join(str(step) for step in steps) or "none"
        why = "none was measured" if which == "best" and steps else "there is no such checkpoint"
        raise RunError(f"--from {which}: {why} in {folder.checkpoints}; steps there: {there}")
    return found


def _free(aside: Path, step: int) -> Path:
    """A name for the checkpoint of `step` that is not taken."""
    path, count = aside / f"step-{step}", 1
    while path.exists():
        count += 1
        path = aside / f"step-{step}-{count}"
    return path


def _line(folder: RunFolder, step: int, gone: Sequence[int]) -> str:
    if not gone:
        return f"from the checkpoint of step {step}, the newest"
    names = ", ".join(str(each) for each in sorted(gone))
    return (
        f"from the checkpoint of step {step}; set aside in {folder.path / 'set-aside'}: step "
        f"{names} (remove them when you don't want them)"
    )
