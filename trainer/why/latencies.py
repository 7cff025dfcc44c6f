"""Latencies of a window: by tool, task, image, stage and component, from the ledger's rows."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from patchgym.trainer.idle import Spread, spread_of
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.statistics import percentile

from .window import Window

Name = TypeVar("Name", str, tuple[str, str])

_NEVER = 1e18  # seconds since the epoch
_IN_WINDOW = (
    "r.purpose = 'train' AND (r.finished > ? OR r.group_id IN "
    "(SELECT id FROM groups WHERE step >= ?))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laggards:
    """How far the last rollout of a group is behind the middle one."""

    groups: int
    """Groups of three or more that this is about."""
    last: float
    """Seconds of the slowest rollout, in the median group."""
    middle: float
    """Seconds of the middle one there."""
    gain: float
    """Mean share of the last one's seconds by which the middle one is ahead, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Percentiles by name, the slowest first."""

    stages: dict[str, Spread]
    """Of each stay of a rollout in a stage, tool calls by name among them."""
    tools: dict[tuple[str, str], Spread]
    """Of turns by tools and image; the image is empty where it is not known."""
    tasks: dict[str, Spread]
    """Of whole rollouts."""
    images: dict[str, Spread]
    """Of whole rollouts."""
    components: dict[str, Spread]
    """Of the reward's parts."""
    cut_turns: float
    """Share of turns that ended for their number of tokens."""
    laggards: Laggards


def read_latencies(reader: LedgerReader, window: Window) -> Latencies:
    """Those of the rollouts that ended in the window, or were trained in it."""
    begin = window.begin if window.begin is not None else _NEVER
    values = (0.0 if window.first == 0 else begin, window.first)
    image_of: Mapping[str, str] = reader.meta("images", {})
    columns = "task_id, group_id, seconds"
    rollouts = reader.rows(f"SELECT {columns} FROM rollouts r WHERE {_IN_WINDOW}", values)
    turns = reader.rows(
        "SELECT r.task_id, t.tools, t.tool_seconds, t.finish FROM turns t JOIN rollouts r "
        f"ON r.id = t.rollout_id WHERE {_IN_WINDOW}",
        values,
    )
    scores = reader.rows(
        "SELECT s.component AS name, s.seconds FROM scores s JOIN rollouts r "
        f"ON r.id = s.rollout_id WHERE {_IN_WINDOW}",
        values,
    )
    cut = sum(row["finish"] == "length" for row in turns)
    return Latencies(
        stages=_stages(window),
        tools=_tools(turns, image_of),
        tasks=_spreads([(row["task_id"], row["seconds"]) for row in rollouts]),
        images=_spreads(
            [
                (image_of[row["task_id"]], row["seconds"])
                for row in rollouts
                if row["task_id"] in image_of
            ]
        ),
        components=_spreads([(row["name"], row["seconds"]) for row in scores]),
        cut_turns=cut / len(turns) if turns else 0.0,
        laggards=_laggards([(row["group_id"], row["seconds"]) for row in rollouts]),
    )


def _tools(
    turns: Sequence[sqlite3.Row], image_of: Mapping[str, str]
) -> dict[tuple[str, str], Spread]:
    found = [
        ((" + ".join(sorted(set(row["tools"].split()))), image_of.get(row["task_id"], "")),
         row["tool_seconds"])
        for row in turns
        if row["tools"]
    ]  # fmt: skip
    return _spreads(found)


def _laggards(rollouts: Sequence[tuple[str, float]]) -> Laggards:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for group_id, seconds in rollouts:
        groups[group_id].append(seconds)
    pairs = [
        (max(each), percentile(each, 0.5))
        for each in groups.values()
        if len(each) > 2 and max(each) > 0
    ]
    if not pairs:
        return Laggards(groups=0, last=0.0, middle=0.0, gain=0.0)
    return Laggards(
        groups=len(pairs),
        last=percentile([last for last, _ in pairs], 0.5),
        middle=percentile([middle for _, middle in pairs], 0.5),
        gain=sum(1 - middle / last for last, middle in pairs) / len(pairs),
    )


def _stages(window: Window) -> dict[str, Spread]:
    stages = [account["stages"] for account in window.accounts]
    names = {name for each in stages for name in each}
    found = {name: spread_of([each[name] for each in stages if name in each]) for name in names}
    return _slowest_first(found)


def _spreads(pairs: Sequence[tuple[Name, float]]) -> dict[Name, Spread]:
    groups: defaultdict[Name, list[float]] = defaultdict(list)
    for name, seconds in pairs:
        groups[name].append(seconds)
    return _slowest_first({name: _spread(values) for name, values in groups.items()})


def _spread(values: Sequence[float]) -> Spread:
    p50, p95, p99 = (percentile(values, share) for share in (0.5, 0.95, 0.99))
    return Spread(count=len(values), seconds=sum(values), p50=p50, p95=p95, p99=p99)


def _slowest_first(spreads: dict[Name, Spread]) -> dict[Name, Spread]:
    return dict(sorted(spreads.items(), key=lambda item: (-item[1].p95, str(item[0]))))
