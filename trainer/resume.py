"""What a run goes on from: groups that are ready, groups to roll out again, and counts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .group import Group, Member
from .ledger import LedgerReader
from .task_sets import Visit
from .trajectory_store import TrajectoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The state of groups at a checkpoint."""

    ready: tuple[Group, ...] = ()
    """Whole groups that were not trained at the checkpoint."""
    reopen: tuple[int, ...] = ()
    """Numbers of groups whose rollouts were under way; they run again on the same streams."""
    next_number: int = 0
    committed: int = 0
    """Groups trained up to the checkpoint."""
    visits: tuple[Visit, ...] = ()
    """Every group that was opened, in order."""


def restore_groups(ledger: Path, store: TrajectoryStore, step: int) -> Restored:
    """Groups as they stood when `step` updates were done (that of the checkpoint).

    Groups that a later, lost update had trained are ready again, unless a member was sampled by
    weights that are lost too: those run again.
    """
    ready: list[Group] = []
    reopen: list[int] = []
    committed = 0
    with LedgerReader(ledger) as reader:
        rows = reader.rows("SELECT * FROM groups ORDER BY number")
    for row in rows:
        if row["state"] == "dropped":
            continue
        if row["state"] == "committed" and row["step"] < step:
            committed += 1
            continue
        group = None
        if row["state"] != "pending":
            group = _load(row["id"], row["task_id"], row["number"], row["members"], store)
        if group is not None and _newest(group) <= step:
            ready.append(group)
        else:
            reopen.append(row["number"])
    return Restored(
        ready=tuple(ready),
        reopen=tuple(reopen),
        next_number=max((row["number"] for row in rows), default=-1) + 1,
        committed=committed,
        visits=tuple(
            Visit(
                number=row["number"],
                task_id=row["task_id"],
                spread=_spread(row["state"], row["reason"]),
            )
            for row in rows
        ),
    )


def _spread(state: str, reason: str) -> bool | None:
    if state == "pending" or reason == "too_few":
        return None
    return reason != "no_spread"


def _load(group_id: str, task_id: str, number: int, members: str, store: TrajectoryStore) -> Group:
    stored = [store.read(rollout_id) for rollout_id in json.loads(members)]
    return Group(
        group_id=group_id,
        task_id=task_id,
        number=number,
        members=tuple(
            Member(trajectory=item.trajectory, reward=item.reward)
            for item in stored
            if item.reward is not None
        ),
    )


def _newest(group: Group) -> int:
    versions = [
        turn.completion.policy_version for m in group.members for turn in m.trajectory.turns
    ]
    return max(versions, default=-1)
