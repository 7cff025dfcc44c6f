"""Trajectories on disk: one compressed JSON file each, ids and log-probabilities included."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.agent import Trajectory
from patchgym.rewards import Reward

from .errors import RunError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredRollout:
    """What is kept of one rollout."""

    trajectory: Trajectory
    reward: Reward | None
    """None when it was never scored."""


class TrajectoryStore:
    """Reads and writes `folder/<rollout id>.json.gz`; each write is atomic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, rollout_id: str) -> Path:
        """Where a rollout lies."""
        return self.folder / f"{rollout_id.replace('/', '.')}.json.gz"

    def write(self, stored: StoredRollout) -> Path:
        """Store one rollout (blocking; a few milliseconds)."""
        path = self.path(stored.trajectory.rollout_id)
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(gzip.compress(_dump(stored).encode(), compresslevel=5, mtime=0))
        os.replace(partial, path)
        return path

    def read(self, rollout_id: str) -> StoredRollout:
        """The rollout as it was stored; RunError when it is missing or damaged."""
        path = self.path(rollout_id)
        try:
            return _load(gzip.decompress(path.read_bytes()).decode())
        except FileNotFoundError:
            raise RunError(f"no trajectory {rollout_id} in {self.folder}") from None
        except (OSError, EOFError, ValueError) as error:
            raise RunError(f"{path}: damaged trajectory: {error}") from None


def _dump(stored: StoredRollout) -> str:
    record = dataclasses.asdict(stored)
    for holder, key in _bytes_of(record):
        holder[key] = base64.b64encode(holder[key]).decode()
    return json.dumps(record)


def _load(text: str) -> StoredRollout:
    from pydantic import TypeAdapter

    record: dict[str, Any] = json.loads(text)
    for holder, key in _bytes_of(record):
        holder[key] = base64.b64decode(holder[key])
    return TypeAdapter(StoredRollout).validate_python(record)


def _bytes_of(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where a rollout's record holds bytes, which JSON doesn't know."""
    trajectory = record["trajectory"]
    yield trajectory, "outcome"
    for turn in trajectory["turns"]:
        for observation in turn["observations"]:
            yield observation, "diff"
