"""What a run goes on from: groups that are ready, groups to roll out again, and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import RunError
from .group import Group, Member
from .ledger import LedgerReader, RestoredGroup
from .ledger.rows import newest_version
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
    damaged: tuple[str, ...] = ()
    """What is said of each group whose rollouts could not be read."""
    visits: tuple[Visit, ...] = ()
    """Every group that was opened, in order."""
    late: tuple[str, ...] = ()
    """Ids of tasks whose groups came too late and that were not opened again since: they come
    first, in this order."""
    skipped: int = 0
    """Batches that were left out because their loss or gradient was not finite."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Groups in a row that came to nothing, by task."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why each task that is left out is so."""
    passed_over: frozenset[str] = frozenset()
    """Tasks that are left out, or were for a time."""

    def on_record(self) -> list[RestoredGroup]:
        """`ready`, as the ledger takes them."""
        return [
            RestoredGroup(
                group_id=group.group_id,
                task_id=group.task_id,
                number=group.number,
                members=tuple(member.trajectory.rollout_id for member in group.members),
                version=group.oldest_version,
            )
            for group in self.ready
        ]

    def given_up(self) -> tuple[Visit, ...]:
        """Those of `reopen` whose tasks are left out: they don't run again."""
        again = set(self.reopen)
        its = (visit for visit in self.visits if visit.number in again)
        return tuple(visit for visit in its if visit.task_id in self.left_out)


def restore_groups(ledger: Path, store: TrajectoryStore, step: int) -> Restored:
    """Groups as they stood when `step` updates were done (that of the checkpoint).

    Groups that a later, lost update had trained are ready again, unless a member was sampled by
    weights that are lost too: those run again.
    """
    ready: list[Group] = []
    reopen: list[int] = []
    damaged: list[str] = []
    committed = 0
    with LedgerReader(ledger) as reader:
        rows = reader.rows("SELECT * FROM groups ORDER BY number")
        events = reader.rows("SELECT detail FROM events WHERE kind = 'skipped'")
        failures = {task["id"]: task["failures"] for task in reader.tasks()}
        left_out, passed_over = reader.left_out(), _ever_left_out(reader)
    for row in rows:
        if row["state"] == "dropped":
            continue
        if row["state"] == "committed" and row["step"] < step:
            committed += 1
            continue
        group = None
        if row["state"] != "pending":
            try:
                group = load_group(row, store)
            except RunError as error:
                damaged.append(f"group {row['id']} is rolled out again: {error}")
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
        late=_late(rows),
        damaged=tuple(damaged),
        skipped=_skipped(rows, [json.loads(event["detail"]) for event in events]),
        failures=failures,
        left_out=left_out,
        passed_over=passed_over | left_out.keys(),
    )


def _ever_left_out(reader: LedgerReader) -> frozenset[str]:
    events = reader.rows("SELECT detail FROM events WHERE kind = 'quarantined'")
    return frozenset(json.loads(event["detail"])["task"] for event in events)


def _late(rows: Sequence[Any]) -> tuple[str, ...]:
    """Tasks of groups that were dropped as stale and not opened again since, in that order."""
    opened: dict[str, list[Any]] = {}
    for row in rows:
        opened.setdefault(row["task_id"], []).append(row)
    stale = [row for row in rows if row["state"] == "dropped" and row["reason"] == "stale"]
    stale.sort(key=lambda row: row["changed"])
    waiting = [row for row in stale if not _again(row, opened[row["task_id"]])]
    return tuple(dict.fromkeys(row["task_id"] for row in waiting))


def _again(stale: Any, same_task: Sequence[Any]) -> bool:
    """Whether one of the task's groups was opened after the group `stale` was dropped."""
    later = [row for row in same_task if row["number"] > stale["number"]]
    # When a group was opened is not known of one that an older version recorded.
    return any(row["opened"] is None or row["opened"] >= stale["changed"] for row in later)


def _skipped(rows: Sequence[Any], events: Sequence[dict[str, Any]]) -> int:
    """Batches whose groups were left out; the one that stopped the run was not, and is ready."""
    left_out = {
        row["id"] for row in rows if row["state"] == "dropped" and row["reason"] == "not_finite"
    }
    return sum(not left_out.isdisjoint(event.get("groups", ())) for event in events)


def _spread(state: str, reason: str) -> bool | None:
    if state == "pending" or reason in ("too_few", "quarantined"):
        return None
    return reason != "no_spread"


def load_group(row: Any, store: TrajectoryStore) -> Group:
    """The group of a `row` of the ledger with its members' trajectories; RunError without one."""
    stored = [store.read(rollout_id) for rollout_id in json.loads(row["members"])]
    return Group(
        group_id=row["id"],
        task_id=row["task_id"],
        number=row["number"],
        members=tuple(
            Member(trajectory=item.trajectory, reward=item.reward)
            for item in stored
            if item.reward is not None
        ),
    )


def _newest(group: Group) -> int:
    return max((newest_version(m.trajectory) for m in group.members), default=-1)
