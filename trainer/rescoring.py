"""Scores the stored rollouts of a run under another reward.

    ledger ── ids ──> trajectories ──> Scorer, with the stored verdicts ──> rows, rescored-X.jsonl

No test is run again: a verdict is what it was. Sandboxes are opened only for linters, when a
component looks at them. What is stored stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import anyio
import anyio.to_thread

from patchgym.datasets.task import Task
from patchgym.rewards.base import Reward, Verdict
from patchgym.rewards.config import RewardConfig
from patchgym.rewards.plain import plain

from .config import RunConfig
from .errors import RunError
from .ledger import LedgerReader
from .rescored import Rescored, row_record
from .run_folder import RunFolder
from .stored_verdicts import Score
from .task_sets import load_task_set
from .trajectory_store import TrajectoryStore

_AT_ONCE = 16
_CHUNK = 256  # rollouts in memory at a time
_BROKEN = (LookupError, TypeError, AttributeError, RecursionError, zlib.error)
"""What reading a file raises that holds something else than a rollout."""


@dataclass(slots=True, kw_only=True)
class Rescoring:
    """What came of it."""

    reward: RewardConfig
    file: Path
    """One JSON object for each rollout of `rows`."""
    rows: list[Rescored] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Rollouts that have no reward to compare, by the reason."""
    damaged: dict[str, str] = field(default_factory=dict)
    """Trajectories that can't be read, by rollout id, with the reason."""


@dataclass(frozen=True, slots=True)
class _Listed:
    rollout_id: str
    group_id: str
    task_id: str
    purpose: str


def reward_digest(reward: RewardConfig) -> str:
    """Eight hex digits that tell rewards apart."""
    text = json.dumps(reward.as_mapping(), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def tasks_of(config: RunConfig, run: Path) -> dict[str, Task]:
    """The run's tasks by id; RunError when they are no repositories. Blocking."""
    if config.environment.use not in ("repair", "repository"):
        raise RunError(
            f"{run}: its tasks are no repositories, and its own environment "
            f"({config.environment.use}) gave the reward: there is no patch to score again"
        )
    names = dict.fromkeys((config.tasks.train, config.tasks.heldout))
    return {task.id: task for name in names for task in load_task_set(name)}


async def rescore(
    folder: RunFolder,
    reward: RewardConfig,
    tasks: Mapping[str, Task],
    score: Score,
    *,
    limit: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Rescoring:
    """Score what is stored, the first `limit` rollouts or all for 0, in the order they finished."""
    listed = await anyio.to_thread.run_sync(_listed, folder, limit)
    done = Rescoring(reward=reward, file=folder.path / f"rescored-{reward_digest(reward)}.jsonl")
    partial = done.file.with_suffix(f".{os.getpid()}.partial")
    store = TrajectoryStore(folder.trajectories)
    try:
        with partial.open("w") as out:
            for start in range(0, len(listed), _CHUNK):
                await _chunk(listed[start : start + _CHUNK], store, tasks, score, done, out)
                progress(min(start + _CHUNK, len(listed)), len(listed))
        os.replace(partial, done.file)
    except OSError as error:
        raise RunError(f"{done.file}: can't be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return done


async def _chunk(
    listed: Sequence[_Listed],
    store: TrajectoryStore,
    tasks: Mapping[str, Task],
    score: Score,
    done: Rescoring,
    out: TextIO,
) -> None:
    """Score these side by side and write them in their order."""
    found: dict[str, tuple[Rescored, Reward]] = {}
    free = anyio.CapacityLimiter(_AT_ONCE)

    async def one(item: _Listed) -> None:
        async with free:
            pair = await _one(item, store, tasks, score, done)
            if pair is not None:
                found[item.rollout_id] = pair

    async with anyio.create_task_group() as group:
        for item in listed:
            group.start_soon(one, item)
    for item in listed:
        if item.rollout_id in found:
            row, after = found[item.rollout_id]
            done.rows.append(row)
            out.write(json.dumps(row_record(row, after, plain)) + "\n")


async def _one(
    item: _Listed, store: TrajectoryStore, tasks: Mapping[str, Task], score: Score, done: Rescoring
) -> tuple[Rescored, Reward] | None:
    try:
        stored = await anyio.to_thread.run_sync(store.read, item.rollout_id)
    except RunError as error:
        done.damaged[item.rollout_id] = str(error)
        return None
    except _BROKEN as error:
        done.damaged[item.rollout_id] = f"damaged: {type(error).__name__}: {error}"[:300]
        return None
    before = stored.reward
    if before is None or _lost(before.verdict):
        done.left_out[f"no verdict: {stored.trajectory.stop_reason}"] += 1
        return None
    if before.verdict.evidence == "answer":
        raise RunError(
            f"{item.rollout_id} has an answer that its own environment checked, not a patch: "
            "such a run can't be scored again"
        )
    if item.task_id not in tasks:
        done.left_out[f"{item.task_id} is not among the run's tasks any more"] += 1
        return None
    after = await score(tasks[item.task_id], stored)
    names = {
        "rollout_id": item.rollout_id,
        "group_id": item.group_id,
        "task_id": item.task_id,
        "purpose": item.purpose,
    }
    return Rescored.of(before, after, **names), after


def _lost(verdict: Verdict) -> bool:
    """Whether it ought to be known and is not; a reward may also need none."""
    return verdict.status == "unknown" and verdict.evidence != "not_taken"


def _listed(folder: RunFolder, limit: int) -> list[_Listed]:
    sql = "SELECT id, group_id, task_id, purpose FROM rollouts ORDER BY finished, id"
    with LedgerReader(folder.ledger) as reader:
        rows = reader.rows(sql)
    rows = rows[:limit] if limit else rows
    if not rows:
        raise RunError(f"{folder.path}: no rollout has finished in it yet")
    return [_Listed(row["id"], row["group_id"], row["task_id"], row["purpose"]) for row in rows]
