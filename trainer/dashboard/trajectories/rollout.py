"""One rollout as the ledger and its file have it; the file may be missing or damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from starlette.exceptions import HTTPException

from patchgym.agent import Trajectory
from patchgym.trainer.config import RunConfig
from patchgym.trainer.dashboard.runs import OpenRun
from patchgym.trainer.errors import RunError
from patchgym.trainer.rollout_file import StoredRollout, decode, encode
from patchgym.trainer.trajectory_store import TrajectoryStore

from .judged_tests import Outing
from .known_config import known_config
from .siblings import Siblings, siblings_of

OTHERS = 16
"""Other rollouts of the task whose files a page reads."""

_LARGE = 256 << 10  # bytes of a file that is too large to read for its test outcomes alone


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A rollout of an open run."""

    run: OpenRun
    row: sqlite3.Row
    """Of `rollouts`."""
    stored: StoredRollout | None
    """None when its file can't be read."""
    problem: str
    """Why it can't be read; empty otherwise."""

    @property
    def name(self) -> str:
        """Its id."""
        return str(self.row["id"])

    @property
    def config(self) -> RunConfig | None:
        """The run's settings; None for those of another version, which can't be read."""
        return known_config(self.run.folder)

    @cached_property
    def siblings(self) -> Siblings:
        """Its group."""
        return siblings_of(self.run.reader, self.row["group_id"], self.config)

    def outings(self) -> list[Outing]:
        """How siblings, and rollouts of the task's last other groups, were judged."""
        store = TrajectoryStore(self.run.folder.trajectories)
        found: list[Outing] = []
        for name in self._related():
            try:
                file = store.path(name).stat()
                if file.st_size <= _LARGE:
                    found.append(_outing(store.folder, name, file.st_mtime_ns))
            except (RunError, OSError):
                continue  # its own page says what is wrong with it
        return [outing for outing in found if outing.outcomes]

    def _related(self) -> list[str]:
        names = [each.row["id"] for each in self.siblings.members]
        groups = self.run.reader.rows(
            "SELECT id FROM groups WHERE task_id = ? AND id != ? ORDER BY number DESC LIMIT 3",
            (self.row["task_id"], self.row["group_id"]),
        )
        for group in groups:
            sql = "SELECT id FROM rollouts WHERE group_id = ? ORDER BY member LIMIT ?"
            names += [row["id"] for row in self.run.reader.rows(sql, (group["id"], OTHERS))]
        return [name for name in names if name != self.name][:OTHERS]


def warm_reading() -> None:
    """Read a file that is none: what checks files is made on the first, which takes a while."""
    nothing = Trajectory(rollout_id="", task_id="", seed=0, turns=(), stop_reason="submitted")
    decode(encode(StoredRollout(trajectory=nothing, reward=None)), "")


@lru_cache(maxsize=512)
def _outing(folder: Path, name: str, changed: int) -> Outing:
    """Kept, since the next rollout that is looked at is likely to be of the same task."""
    del changed  # names the version of the file
    return Outing.of(TrajectoryStore(folder).read_text(name))


def open_rollout(run: OpenRun, name: str, *, arrays: bool = False) -> Rollout:
    """The rollout called `name`, with ids and log-probabilities if `arrays`; 404 when there is
    none."""
    rows = run.reader.rows("SELECT * FROM rollouts WHERE id = ?", (name,))
    if not rows:
        raise HTTPException(
            404,
            f"there is no finished rollout {name!r} in {run.name}: rollouts under way come here "
            "when they end",
        )
    store = TrajectoryStore(run.folder.trajectories)
    try:
        stored, problem = (store.read if arrays else store.read_text)(name), ""
    except RunError as error:
        stored, problem = None, str(error)
    return Rollout(run=run, row=rows[0], stored=stored, problem=problem)


def texts(rollout: Rollout) -> Iterator[tuple[str, str]]:
    """Every text of its file that a page may cut, by the name of its part."""
    if rollout.stored is None:
        return
    for number, turn in enumerate(rollout.stored.trajectory.turns, 1):
        yield f"turn-{number}", turn.text
        for place, observation in enumerate(turn.observations):
            yield f"observation-{number}-{place}", observation.text
            yield f"tree-{number}-{place}", observation.diff.decode("utf-8", "backslashreplace")
    yield "patch", rollout.stored.trajectory.outcome.decode("utf-8", "backslashreplace")
    if rollout.stored.reward is not None:
        yield "log", rollout.stored.reward.verdict.log
        yield "detail", rollout.stored.reward.verdict.detail
