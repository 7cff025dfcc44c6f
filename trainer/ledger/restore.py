"""What a ledger is changed to when a run goes on from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchgym.trainer.errors import RunError

from .writer import Statement

_READY = """
INSERT INTO groups (id, task_id, number, state, members, changed, version, revision, whole)
VALUES (?, ?, ?, 'ready', ?, ?, ?, 0, ?)
ON CONFLICT (id) DO UPDATE SET
    state = 'ready', reason = '', step = NULL, members = excluded.members,
    changed = excluded.changed, version = excluded.version, revision = revision + 1,
    whole = COALESCE(whole, excluded.whole), taken = NULL
"""
_PENDING = """
UPDATE groups SET state = 'pending', reason = '', step = NULL, members = '[]', changed = ?,
    version = NULL, revision = revision + 1, whole = NULL, taken = NULL
WHERE number = ?
"""
_MEASURED_LATER = """
DELETE FROM evaluations WHERE (name = 'after' AND policy_version > ?)
    OR (name LIKE 'step-%' AND CAST(SUBSTR(name, 6) AS INTEGER) > ?)
"""
_RESULTS_LATER = """
DELETE FROM meta WHERE (key LIKE 'evaluation.step-%' AND CAST(SUBSTR(key, 17) AS INTEGER) > ?)
    OR (key = 'evaluation.after' AND NOT EXISTS (SELECT 1 FROM evaluations WHERE name = 'after'))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredGroup:
    """A whole group that the checkpoint's weights were not trained on."""

    group_id: str
    task_id: str
    number: int
    members: tuple[str, ...]
    """Rollout ids."""
    version: int
    """The oldest policy version in it."""


def check_tail(path: Path, known: int, step: int) -> None:
    """RunError when the ledger knows of `known` updates and the checkpoint was made after `step`.

    Each update is on disk before its checkpoint is begun. Where it is not, the ledger's last writes
    are lost, and with them which groups the weights have seen: they would be trained again.
    """
    if known >= step:
        return
    raise RunError(
        f"{path}: the checkpoint is of step {step}, and the ledger ends at step {known}: its last "
        "writes are lost, so which groups were trained in between is not known. Put "
        f"{path.name}-wal (or a newer copy of {path.name}) back where it was, or move checkpoints "
        f"past step {known} away and go on from an older one"
    )


def restore_rows(
    step: int, ready: Sequence[RestoredGroup], reopen: Sequence[int], *, now: float
) -> Iterator[Statement]:
    """Statements; see `Ledger.restore`."""
    yield "DELETE FROM steps WHERE step >= ?", (step,)
    yield _MEASURED_LATER, (step, step)
    yield _RESULTS_LATER, (step,)
    for group in ready:
        members = json.dumps(group.members)
        yield (
            _READY,
            (group.group_id, group.task_id, group.number, members, now, group.version, now),
        )
    for number in reopen:
        yield _PENDING, (now, number)
