"""What a run's folder says of itself, read as of one moment and without touching it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Row
from typing import Any

from patchgym.sandbox import Owner

from .errors import RunError
from .ledger import LedgerReader
from .run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a run's folder says, as of one moment."""

    folder: RunFolder
    state: str
    """running, finished, stopped or failed."""
    planned: int
    """Steps that the run is to make."""
    max_staleness: int
    groups: Sequence[Row]
    rollouts: Sequence[Row]
    """Of training and of evaluations."""
    steps: Mapping[int, Mapping[str, Any]]
    """Metrics by step, from 0."""
    checkpoint: int
    """C: updates that the newest complete checkpoint has seen; 0 without one."""
    owners: Sequence[Owner]
    """The processes that ran it, one after another."""

    def in_order(self) -> bool:
        """The run ended by itself, not by a kill."""
        return self.state in ("finished", "stopped", "failed")


def read_facts(folder: RunFolder) -> Facts:
    """Read the ledger and the names of checkpoints; RunError when the ledger can't be read."""
    config = folder.load_config()
    # Before the ledger, which is ahead of it in a run that goes on.
    checkpoint = max(checkpoint_steps(folder), default=0)
    with LedgerReader(folder.ledger) as reader:
        reader.rows("BEGIN")
        (damage,) = reader.rows("PRAGMA quick_check(1)")[0]
        if damage != "ok":
            raise RunError(f"{folder.ledger}: damaged: {damage}")
        return Facts(
            folder=folder,
            state=reader.meta("state", "unknown"),
            planned=config.run.steps,
            max_staleness=config.group.max_staleness,
            groups=reader.rows("SELECT * FROM groups ORDER BY number"),
            rollouts=reader.rows("SELECT * FROM rollouts ORDER BY id"),
            steps={step["step"]: step for step in reader.steps()},
            checkpoint=checkpoint,
            owners=_owners(reader),
        )


def checkpoint_steps(folder: RunFolder) -> list[int]:
    """Steps of complete checkpoints, ascending; an incomplete one has another name."""
    if not folder.checkpoints.is_dir():
        return []
    return sorted(int(path.name) for path in folder.checkpoints.iterdir() if path.name.isdecimal())


def _owners(reader: LedgerReader) -> list[Owner]:
    rows = reader.rows("SELECT detail FROM events WHERE kind = 'began' ORDER BY time")
    found = [Owner.of(json.loads(row["detail"]).get("owner", {})) for row in rows]
    return [owner for owner in found if owner is not None]
