"""The rollouts of one group, side by side: what each earned and what it is compared with."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from patchgym.agent import STOP_RULES
from patchgym.trainer.config import RunConfig
from patchgym.trainer.ledger import LedgerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Sibling:
    """One rollout of a group."""

    row: sqlite3.Row
    """Of `rollouts`."""
    advantage: float | None
    """None where it did not count, or can't be told from the ledger alone."""

    @property
    def counts(self) -> bool:
        """Its reward took part in the group's comparison."""
        return _counts(self.row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """A group."""

    group_id: str
    row: sqlite3.Row | None
    """Of `groups`; None for a task's samples in an evaluation."""
    members: tuple[Sibling, ...]
    """By member, attempts in their order."""

    @property
    def fate(self) -> str:
        """What became of the group, in words."""
        if self.row is None:
            return ""
        state, reason = self.row["state"], self.row["reason"]
        if state == "committed" and self.row["step"] is not None:
            return f"trained at step {self.row['step']}"
        return f"{state}: {reason.replace('_', ' ')}" if reason else str(state)

    def advantage(self, rollout_id: str) -> float | None:
        """That of one member."""
        found = [each.advantage for each in self.members if each.row["id"] == rollout_id]
        return found[0] if found else None


def siblings_of(reader: LedgerReader, group_id: str, config: RunConfig | None) -> Siblings:
    """The group called `group_id`, or the samples of a task in an evaluation."""
    found = reader.group(group_id)
    if found is None:
        sql = "SELECT * FROM rollouts WHERE group_id = ? ORDER BY member, finished"
        row, rows = None, reader.rows(sql, (group_id,))
    else:
        row, rows = found
    whole = _members(row) if row is not None else ()
    shares = _advantages([each for each in rows if each["id"] in whole], config)
    members = tuple(Sibling(row=each, advantage=shares.get(each["id"])) for each in rows)
    return Siblings(group_id=group_id, row=row, members=members)


def loss_words(siblings: Siblings, row: sqlite3.Row) -> tuple[bool, str]:
    """Whether the tokens that `row`'s rollout sampled were trained on, and why so."""
    if siblings.row is None:
        return False, "it is a sample of an evaluation: nothing is trained on it"
    rule = STOP_RULES.get(row["stop_reason"])
    if rule is not None and not rule.in_loss:
        return False, f"it stopped by {row['stop_reason'].replace('_', ' ')}: left out of the loss"
    if row["reward"] is None:
        return False, "its reward is unknown: left out of the loss"
    state = siblings.row["state"]
    if state == "dropped":
        return False, f"its group was dropped ({siblings.row['reason'].replace('_', ' ')})"
    if state != "committed":
        return False, f"its group is {state}: not trained yet"
    if row["id"] not in _members(siblings.row):
        return False, "its group was trained without it"
    share = siblings.advantage(row["id"])
    pull = "" if share is None else f" with the advantage {share:+.3f}"
    return True, f"trained at step {siblings.row['step']}{pull}"


def _members(row: sqlite3.Row) -> tuple[str, ...]:
    return tuple(json.loads(row["members"]))


def _counts(row: sqlite3.Row) -> bool:
    rule = STOP_RULES.get(row["stop_reason"])
    known = row["reward"] is not None and math.isfinite(row["reward"])
    return known and (rule is None or rule.in_baseline)


def _advantages(rows: Sequence[sqlite3.Row], config: RunConfig | None) -> dict[str, float]:
    """By rollout; empty where more than the totals decides."""
    counted = [row for row in rows if _counts(row)]
    if config is None or not counted:
        return {}
    if config.reward.normalize != "total" or config.learner.overlong == "soft":
        return {}
    try:
        from patchgym.trainer.advantages import group_advantages
    except ImportError:  # numpy comes with [train]
        return {}
    values = group_advantages([row["reward"] for row in counted], estimator=config.group.estimator)
    return {row["id"]: float(value) for row, value in zip(counted, values, strict=True)}
