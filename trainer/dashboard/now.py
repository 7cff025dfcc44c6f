"""What a run's page shows of this moment: counts, times, tokens, what came last.

All of it is read from the ledger in a few queries, none of which grows with a run faster than a
scan of one index.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .runs import OpenRun
from .series import Series
from .times import Spread, part_spreads, per_minute, recent_times, stage_spreads, tool_spreads
from .totals import Key, Totals, read_totals

LATEST = 10
"""Rollouts that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What rollouts of one purpose came to."""

    purpose: str
    rollouts: int
    resolved: int
    known: int
    """With a verdict."""
    sampled: int
    """Tokens."""
    context: int | None
    """Tokens that were not sampled; None in ledgers that don't have them."""
    seconds: float
    """From begin to end, summed."""

    @property
    def pass_rate(self) -> float | None:
        """Resolved over known."""
        return self.resolved / self.known if self.known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A held-out evaluation."""

    name: str
    step: int
    """Updates that the weights had seen."""
    pass_rate: float
    low: float
    high: float
    """Ends of the 95% interval."""
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A run as of one moment."""

    read_at: float
    """Seconds since the epoch."""
    spent: Sequence[Spent]
    outcomes: Mapping[str, int]
    """Rollouts by stop_reason, most first."""
    states: Mapping[str, int]
    """Groups."""
    dropped: Mapping[str, int]
    """Groups by reason, most first."""
    spreads: Sequence[Spread]
    """Of the parts of the last rollouts, then of tools."""
    per_minute: float | None
    """Rollouts, over the window."""
    heldout: Sequence[Measured]
    latest: Sequence[sqlite3.Row]
    """Rollouts, the newest first."""
    alarms: Mapping[str, int]
    """Events that are worth a look, by kind."""

    @property
    def rollouts(self) -> int:
        """All of them."""
        return sum(each.rollouts for each in self.spent)


def read_now(run: OpenRun, series: Series) -> Now:
    """The present state of `run`, whose steps are `series`. Blocking."""
    recent = recent_times(run)
    totals = read_totals(run)
    states, dropped = _groups(run)
    return Now(
        read_at=time.time(),
        spent=_spent(totals),
        outcomes=_outcomes(totals),
        states=states,
        dropped=dropped,
        spreads=[*part_spreads(recent), *(stage_spreads(series) or tool_spreads(run, recent))],
        per_minute=per_minute(recent),
        heldout=read_heldout(run, series.length),
        latest=run.reader.newest(LATEST),
        alarms=_alarms(run),
    )


def read_heldout(run: OpenRun, steps: int) -> list[Measured]:
    """The evaluations that are complete, in the order of their weights."""
    rows = run.reader.rows("SELECT key, value FROM meta WHERE key LIKE 'evaluation.%'")
    found = []
    for row in rows:
        name, value = row["key"].partition(".")[2], json.loads(row["value"])
        low, high = value["interval"]
        found.append(
            Measured(
                name=name,
                step=_place(name, steps),
                pass_rate=value["pass_rate"],
                low=low,
                high=high,
                samples=value["samples"],
            )
        )
    return sorted(found, key=lambda each: (each.step, each.name == "after"))


def _place(name: str, steps: int) -> int:
    if name == "before":
        return 0
    number = name.removeprefix("step-")
    return int(number) if number.isdecimal() else steps


def _spent(totals: Totals) -> list[Spent]:
    keys: dict[str, list[Key]] = defaultdict(list)
    for key in totals.rollouts:
        keys[key[0]].append(key)
    spent = [_one(purpose, found, totals) for purpose, found in keys.items()]
    return sorted(spent, key=lambda each: -each.rollouts)


def _one(purpose: str, keys: Sequence[Key], totals: Totals) -> Spent:
    contexts = [totals.context[key] for key in keys if key in totals.context]
    return Spent(
        purpose=purpose,
        rollouts=sum(totals.rollouts[key] for key in keys),
        resolved=sum(totals.rollouts[key] for key in keys if key[1] == "resolved"),
        known=sum(totals.rollouts[key] for key in keys if key[1] != "unknown"),
        sampled=sum(totals.sampled[key] for key in keys),
        context=sum(contexts) if contexts else None,
        seconds=sum(totals.seconds[key] for key in keys),
    )


def _outcomes(totals: Totals) -> dict[str, int]:
    found: Counter[str] = Counter()
    for (_, _, stop_reason), rollouts in totals.rollouts.items():
        found[stop_reason] += rollouts
    return dict(found.most_common())


def _groups(run: OpenRun) -> tuple[dict[str, int], dict[str, int]]:
    states: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    sql = "SELECT state, reason, COUNT(*) AS n FROM groups GROUP BY state, reason"
    for row in run.reader.rows(sql):
        states[row["state"]] += row["n"]
        if row["state"] == "dropped":
            dropped[row["reason"]] += row["n"]
    return dict(states), dict(dropped.most_common())


def _alarms(run: OpenRun) -> dict[str, int]:
    sql = (
        "SELECT kind, COUNT(*) AS n FROM events WHERE kind IN "
        "('alarm', 'stalled', 'skipped', 'checkpoint_failed') GROUP BY kind ORDER BY kind"
    )
    return {row["kind"]: row["n"] for row in run.reader.rows(sql)}
