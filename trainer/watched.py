"""What the reward watch keeps of a rollout, and of a step: numbers by metric, and a few ids."""

from __future__ import annotations

import hashlib
import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from patchgym.agent import rule_for
from patchgym.rewards.base import Reward

from .drift import Tally
from .group import Member

Metric = tuple[str, str]
"""What is measured, and of which component; the second is empty for a rollout as a whole.

    reward, resolved, unearned    the total; 1 if resolved; the total less what solving earns
    adds, value (a component)     its contribution, less what solving earns; its value
    size                          log2 of 1 + changed lines; a group's median instead of its mean
    across, within                the same edit in another task; the same failure in its group
    tampering, unknown            a finding of tampering; the total or a score is unknown
"""
Example = tuple[float, str]
"""A value and the rollout that has it."""

_KEPT = 3  # examples of a metric and a step
_HASHED = 1 << 18  # bytes of a patch that tell it from another
_EDIT = re.compile(rb"^(?:\+(?!\+\+ )|-(?!-- )).*$", re.MULTILINE)
_SOLVING = ("tests", "answer")


@dataclass(frozen=True, slots=True)
class Observed:
    """One rollout."""

    rollout_id: str
    group_id: str
    task_id: str
    values: Mapping[Metric, float]
    edit: bytes
    """Digest of the lines that it adds and removes, wherever; empty for an empty patch."""
    failed: bool
    """Known not to be resolved."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step."""

    step: int
    tallies: Mapping[Metric, Tally]
    """A unit is a group."""
    highest: Mapping[Metric, Sequence[Example]]
    smallest: Sequence[Example]
    """The rollouts with the fewest changed lines."""
    edits: frozenset[tuple[bytes, str]]
    """Edits, each with its task."""

    def examples(self, metric: Metric, *, lowest: bool = False) -> Sequence[Example]:
        """Rollouts that stand out."""
        return self.smallest if lowest else self.highest.get(metric, ())


def observe(group_id: str, member: Member, worth: float) -> Observed:
    """Measure a rollout; `worth` is what solving a task earns."""
    trajectory, reward = member.trajectory, member.reward
    counted = rule_for(trajectory.stop_reason).in_baseline
    known = counted and reward.total is not None
    values: dict[Metric, float] = {}
    if counted or trajectory.stop_reason == "scoring_failed":
        lost = reward.total is None or any(each.status == "unknown" for each in reward.scores)
        values["unknown", ""] = float(lost)
    if known:
        values |= _rewarded(reward, worth)
        values["tampering", ""] = float(bool(reward.verdict.tampering))
        values["size", ""] = math.log2(1 + changed_lines(trajectory.outcome))
    return Observed(
        rollout_id=trajectory.rollout_id,
        group_id=group_id,
        task_id=trajectory.task_id,
        values=values,
        edit=_edit(trajectory.outcome) if known else b"",
        failed=known and not reward.resolved,
    )


def changed_lines(diff: bytes) -> int:
    """Lines that a git diff adds and removes; in time linear in its length."""
    lines = diff.count(b"\n+") + diff.count(b"\n-")
    return max(0, lines - diff.count(b"\n+++ ") - diff.count(b"\n--- "))


def record_of(step: int, seen: Sequence[Observed], recent: Sequence[StepRecord]) -> StepRecord:
    """The step's sums; `recent` are steps whose edits count for what is the same across tasks."""
    edits = frozenset((each.edit, each.task_id) for each in seen if each.edit)
    values = _with_duplicates(seen, edits.union(*(each.edits for each in recent)))
    units: dict[Metric, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    ranked: dict[Metric, list[Example]] = defaultdict(list)
    for each, measured in zip(seen, values, strict=True):
        for metric, value in measured.items():
            units[metric][each.group_id].append(value)
            ranked[metric].append((value, each.rollout_id))
    return StepRecord(
        step=step,
        tallies={metric: Tally.of(map(_middle(metric), groups.values()))
                 for metric, groups in units.items()},
        highest={metric: heapq.nlargest(_KEPT, found) for metric, found in ranked.items()},
        smallest=heapq.nsmallest(_KEPT, ranked["size", ""]),
        edits=edits,
    )  # fmt: skip


def _rewarded(reward: Reward, worth: float) -> dict[Metric, float]:
    total, earned = reward.total or 0.0, worth * reward.resolved
    values: dict[Metric, float] = {
        ("reward", ""): total,
        ("resolved", ""): float(reward.resolved),
        ("unearned", ""): total - earned,
    }
    for score in reward.scores:
        solving = earned if score.name in _SOLVING else 0.0
        values["adds", score.name] = score.contribution - solving
        if score.value is not None:
            values["value", score.name] = score.value
    return values


def _edit(diff: bytes) -> bytes:
    """Of the lines alone: file names and places tell tasks apart, not edits."""
    lines = _EDIT.findall(diff[:_HASHED])
    return hashlib.blake2b(b"\n".join(lines), digest_size=12).digest() if lines else b""


def _with_duplicates(
    seen: Sequence[Observed], edits: frozenset[tuple[bytes, str]]
) -> list[Mapping[Metric, float]]:
    tasks = Counter(edit for edit, _ in edits)
    failures = Counter((each.group_id, each.edit) for each in seen if each.failed and each.edit)
    return [
        {
            **each.values,
            ("across", ""): float(bool(each.edit) and tasks[each.edit] > 1),
            ("within", ""): float(each.failed and failures[each.group_id, each.edit] > 1),
        }
        if ("reward", "") in each.values
        else each.values
        for each in seen
    ]


def _middle(metric: Metric) -> Callable[[Sequence[float]], float]:
    return median if metric[0] == "size" else fmean
