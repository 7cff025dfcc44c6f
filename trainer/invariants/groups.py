"""Groups: each opened one is somewhere, trained once at the most, and in time."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from sqlite3 import Row
from typing import get_args

from patchgym.agent.stop_reason import STOP_RULES
from patchgym.trainer.group import DropReason
from patchgym.trainer.ledger import GroupState
from patchgym.trainer.run_facts import Facts

from .finding import Finding

_STATES = frozenset(get_args(GroupState))
_REASONS = frozenset(get_args(DropReason))


def trained_once(facts: Facts) -> Finding:
    """A group's row has one step, so a second training shows where it is gone from the first."""
    committed = committed_rows(facts)
    broken = [
        f"rollout {name} is in {' and '.join(sorted(users))}, all of them committed"
        for name, users in _users(committed).items()
        if len(users) > 1
    ]
    counts = Counter(row["step"] for row in committed)
    for step, metrics in facts.steps.items():
        trained = sum(metrics.get("staleness", {}).values())
        if "staleness" in metrics and trained != counts[step]:
            broken.append(
                f"step {step} trained {trained} groups and has {counts[step]}: the others were "
                "trained at another step, too"
            )
    seen = sum(row["step"] < facts.checkpoint for row in committed)
    note = f"{seen} as of the checkpoint of step {facts.checkpoint}"
    if again := len(committed) - seen:
        note += f"; {again} past it, which a resume trains again"
    return Finding(
        name="trained once",
        promise="each committed group was trained once",
        checked=len(committed),
        broken=tuple(broken),
        note=note,
    )


def none_lost(facts: Facts) -> Finding:
    """Numbers without a gap, known states and reasons, members on record."""
    broken: list[str] = []
    known = {row["id"] for row in facts.rollouts}
    numbers = [row["number"] for row in facts.groups]
    missing = sorted(set(range(max(numbers, default=-1) + 1)) - set(numbers))
    broken += [f"group number {number} was opened and is nowhere" for number in missing]
    broken += [
        f"group number {n} is there {count} times"
        for n, count in Counter(numbers).items()
        if count > 1
    ]
    for row in facts.groups:
        broken += _wrong(row, known)
    names = {row["id"] for row in facts.groups}
    broken += [
        f"rollout {row['id']} is of the group {row['group_id']}, which was never opened"
        for row in facts.rollouts
        if row["purpose"] == "train" and row["group_id"] not in names
    ]
    states = Counter(row["state"] for row in facts.groups)
    return Finding(
        name="none lost",
        promise="every opened group is pending, ready, taken, committed, or dropped with a reason",
        checked=len(facts.groups),
        broken=tuple(broken),
        note=", ".join(f"{count} {state}" for state, count in sorted(states.items())),
    )


def _wrong(row: Row, known: set[str]) -> Iterator[str]:
    """What is wrong with a group's row by itself."""
    name, state, members = row["id"], row["state"], json.loads(row["members"])
    if state not in _STATES:
        yield f"group {name} is {state!r}, which is no state"
    if state == "dropped" and row["reason"] not in _REASONS:
        yield f"group {name} was dropped for {row['reason']!r}, which is no reason"
    if (state == "committed") != (row["step"] is not None) and state != "taken":
        yield f"group {name} is {state} with the step {row['step']}"
    if state in ("ready", "taken", "committed"):
        if not members:
            yield f"group {name} is {state} without members"
        for member in members:
            if member not in known:
                yield f"group {name} is {state}, and its rollout {member} is not on record"


def fresh(facts: Facts) -> Finding:
    """Staleness at the step that a group was trained in."""
    by_id = {row["id"]: row for row in facts.rollouts}
    broken: list[str] = []
    ages: Counter[int] = Counter()
    for row in committed_rows(facts):
        age = row["step"] - _oldest_version(row, by_id)
        ages[age] += 1
        if not 0 <= age <= facts.max_staleness:
            broken.append(
                f"group {row['id']} was trained at step {row['step']} with a staleness of {age} "
                f"(group.max_staleness is {facts.max_staleness})"
            )
    return Finding(
        name="fresh",
        promise="no group was trained past group.max_staleness",
        checked=sum(ages.values()),
        broken=tuple(broken),
        note=", ".join(f"{count} at {age}" for age, count in sorted(ages.items())),
    )


def _oldest_version(row: Row, by_id: Mapping[str, Row]) -> int:
    """The oldest policy version of the members that were trained on, from their own rows."""
    members = [by_id[name] for name in json.loads(row["members"]) if name in by_id]
    versions = [
        member["policy_version"]
        for member in members
        if member["reward"] is not None and _learns(member["stop_reason"])
    ]
    return min(versions, default=-1)


def _learns(reason: str) -> bool:
    return any(known == reason and rule.in_loss for known, rule in STOP_RULES.items())


def committed_rows(facts: Facts) -> list[Row]:
    """Groups that a step trained."""
    return [row for row in facts.groups if row["state"] == "committed" and row["step"] is not None]


def _users(groups: Sequence[Row]) -> Mapping[str, set[str]]:
    """Groups by rollout."""
    users: dict[str, set[str]] = defaultdict(set)
    for row in groups:
        for name in json.loads(row["members"]):
            users[name].add(row["id"])
    return users
