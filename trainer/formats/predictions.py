"""A run's patches in SWE-bench's format: one line a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from patchgym.datasets.journal import write_whole
from patchgym.trainer.errors import RunError, UserError
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trajectory_store import TrajectoryStore

_PURPOSES = ("policy", "after", "before", "train")


def prediction_rows(
    folder: RunFolder, *, model: str, sample: int = 0, resolved: bool = False
) -> list[dict[str, Any]]:
    """A row for each task of which sample number `sample` is there, sorted by id; blocking.

    Of a training run those of its evaluation after training, else before, else of training.
    `resolved` leaves out all others.
    """
    with LedgerReader(folder.ledger) as reader:
        rows = reader.rows("SELECT * FROM rollouts WHERE member = ? ORDER BY finished", (sample,))
    purposes = {row["purpose"] for row in rows}
    purpose = next((each for each in _PURPOSES if each in purposes), "")
    store = TrajectoryStore(folder.trajectories)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["purpose"] != purpose or (resolved and row["verdict"] != "resolved"):
            continue
        try:
            patch = store.read(row["id"]).trajectory.outcome
        except RunError:
            continue
        found[row["task_id"]] = {
            "instance_id": row["task_id"],
            "model_name_or_path": model,
            "model_patch": patch.decode("utf-8", "surrogateescape"),
        }
    return [found[task_id] for task_id in sorted(found)]


def write_predictions(
    folder: RunFolder, path: Path, *, model: str, sample: int = 0, resolved: bool = False
) -> int:
    """Write the rows as JSON lines; how many. UserError when the file can't be written."""
    rows = prediction_rows(folder, model=model, sample=sample, resolved=resolved)
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror}") from None
    return len(rows)
