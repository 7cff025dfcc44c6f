"""How long the parts of the last rollouts took, as percentiles."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.trainer.idle import spread_of
from patchgym.trainer.statistics import percentile

from .runs import OpenRun
from .series import Series

WINDOW = 1000
"""Rollouts, the last ones, whose times are told."""
_TOOL_WINDOW = 300
"""The same for their tools, which takes all their turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Percentiles of seconds, by nearest rank."""

    name: str
    count: int
    p50: float
    p95: float
    p99: float


def recent_times(run: OpenRun) -> list[sqlite3.Row]:
    """When the last rollouts ended and how long their parts took, the newest first. Blocking."""
    return run.reader.rows(
        "SELECT id, finished, seconds, sample_seconds, tool_seconds, reward_seconds FROM rollouts "
        "ORDER BY finished DESC, id DESC LIMIT ?",
        (WINDOW,),
    )


def per_minute(recent: Sequence[sqlite3.Row]) -> float | None:
    """Rollouts a minute; None of fewer than two."""
    if len(recent) < 2:
        return None
    elapsed = recent[0]["finished"] - recent[-1]["finished"]
    return 60 * (len(recent) - 1) / elapsed if elapsed > 0 else None


def part_spreads(recent: Sequence[sqlite3.Row]) -> list[Spread]:
    """Of whole rollouts and of their parts."""
    names = {
        "seconds": "rollout",
        "sample_seconds": "sampling",
        "tool_seconds": "tools",
        "reward_seconds": "scoring",
    }
    found = [_spread(name, (row[key] for row in recent)) for key, name in names.items()]
    return [spread for spread in found if spread is not None]


def stage_spreads(series: Series, most: int = 10) -> list[Spread]:
    """By stage over the last steps, the longest together first; none of runs of older versions."""
    by_stage: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for account in series.accounts:
        for stage, record in account.get("stages", {}).items():
            by_stage[stage].append(record)
    told = {stage: spread_of(records) for stage, records in by_stage.items()}
    ordered = sorted(told.items(), key=lambda item: -item[1].seconds)
    return [
        Spread(name=f"stage {stage}", count=each.count, p50=each.p50, p95=each.p95, p99=each.p99)
        for stage, each in ordered[:most]
        if each.count
    ]


def tool_spreads(run: OpenRun, recent: Sequence[sqlite3.Row]) -> list[Spread]:
    """By tool: the turns that called it and no other."""
    names = json.dumps([row["id"] for row in recent[:_TOOL_WINDOW]])
    sql = (
        "SELECT tools, tool_seconds FROM json_each(?) AS name "
        "JOIN turns ON turns.rollout_id = name.value WHERE tools != ''"
    )
    seconds: dict[str, list[float]] = defaultdict(list)
    for row in run.reader.rows(sql, (names,)):
        if " " not in row["tools"]:
            seconds[row["tools"]].append(row["tool_seconds"])
    found = [_spread(f"tool {name}", values) for name, values in seconds.items()]
    kept = [spread for spread in found if spread is not None]
    return sorted(kept, key=lambda spread: -spread.p95)[:8]


def _spread(name: str, values: Iterable[float | None]) -> Spread | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    p50, p95, p99 = (percentile(known, share) for share in (0.5, 0.95, 0.99))
    return Spread(name=name, count=len(known), p50=p50, p95=p95, p99=p99)
