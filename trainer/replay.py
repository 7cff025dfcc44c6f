"""Batches that a run skipped, to be looked at and trained on again.

A step whose loss or gradient is not finite is skipped. Its groups stay in the run's folder: named
in the ledger, their trajectories stored whole. So the batch can be made again, to the bit:

    from patchgym.trainer.replay import load_batch, open_learner, skipped_batches
    from patchgym.trainer.run_folder import find_run

    run = find_run("latest")
    skipped = skipped_batches(run)[-1]
    print(open_learner(run, skipped.step).train(load_batch(run, skipped.groups)))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import RunError
from .ledger import LedgerReader
from .policies import model_path
from .resume import load_group
from .run_folder import RunFolder, locked
from .trajectory_store import TrajectoryStore

if TYPE_CHECKING:
    from .batching import TrainSequence
    from .learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A step that was not applied."""

    step: int
    """Steps applied before it."""
    groups: tuple[str, ...]
    """Ids of the groups that it was to train."""
    reason: str
    """What was not finite."""


def skipped_batches(folder: RunFolder) -> list[Skipped]:
    """The steps of a run that were not applied, the oldest first."""
    with LedgerReader(folder.ledger) as reader:
        rows = reader.rows("SELECT detail FROM events WHERE kind = 'skipped' ORDER BY time, rowid")
    details: list[dict[str, Any]] = [json.loads(row["detail"]) for row in rows]
    return [
        Skipped(step=each["step"], groups=tuple(each["groups"]), reason=each["reason"])
        for each in details
    ]


def load_batch(folder: RunFolder, groups: Sequence[str]) -> list[list[TrainSequence]]:
    """What the learner was, or would be, given of the whole groups with the ids `groups`.

    RunError for a group that the run does not know, or of which a trajectory is missing.
    """
    from .train_batch import train_groups

    config, store = folder.load_config(), TrajectoryStore(folder.trajectories)
    found = []
    with LedgerReader(folder.ledger) as reader:
        for group_id in groups:
            rows = reader.rows("SELECT * FROM groups WHERE id = ?", (group_id,))
            if not rows or not json.loads(rows[0]["members"]):
                raise RunError(f"{folder.path}: no whole group {group_id!r}; see the run's ledger")
            found.append(load_group(rows[0], store))
    estimator, normalize = config.group.estimator, config.reward.normalize
    return train_groups(found, estimator, normalize, config.learner)


def open_learner(folder: RunFolder, step: int) -> Learner:
    """The run's learner at its newest checkpoint of `step` or before; its own `step` tells which.

    At the initial weights where there is none. Blocks. RunError for a run under way, which is left
    alone; CheckpointError for a checkpoint that can't be read.
    """
    from .checkpoint import CheckpointStore
    from .learner import Learner
    from .model.load import load_model

    config = folder.load_config()
    with locked(folder):  # opening the store removes what a killed process left half written
        model, params, _ = load_model(model_path(config.model.path))
        learner = Learner(config.learner, model, params)
        store = CheckpointStore(folder.checkpoints, keep=config.checkpoint.keep)
        try:
            if there := [one for one in store.steps() if one <= step]:
                store.restore(learner, step=max(there))
        finally:
            store.close()
    return learner
