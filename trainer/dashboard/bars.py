"""Shares of a whole as coloured bars: where time went, how things ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .series import Series

_WORK = {"training": "c1", "publishing": "c3", "checkpointing": "c6", "bookkeeping": "c8"}
_WAITS = ("c2", "c4", "c5", "c7")
_SMALLEST = 0.005
"""Shares below it are told together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar."""

    word: str
    start: float
    """Shares of the whole, 0 to 1, as is `share`."""
    share: float
    colour: str
    """A class, c1 to c8."""


def learner_bar(account: Mapping[str, Any]) -> list[Segment]:
    """Where the learner's seconds went; empty before its first step."""
    total = account.get("seconds") or 0.0
    if total <= 0:
        return []
    busy = {kind: seconds / total for kind, seconds in account.get("busy", {}).items()}
    reasons = account.get("idle_reasons", {})
    waits = {name: share for name, share in reasons.items() if name not in busy}
    return segments(
        [(kind, busy.get(kind, 0.0), _WORK.get(kind, "c8")) for kind in {**_WORK, **busy}]
        + [
            (f"waits: {name}", share, _WAITS[min(place, len(_WAITS) - 1)])
            for place, (name, share) in enumerate(sorted(waits.items(), key=lambda item: -item[1]))
        ]
    )


def sampler_bar(account: Mapping[str, Any]) -> list[Segment]:
    """The same of the sampler; empty of runs of older versions."""
    told = account.get("sampler")
    if not told:
        return []
    reasons = sorted(told.get("idle_reasons", {}).items(), key=lambda item: -item[1])
    return segments(
        [("generating", 1 - told.get("idle_share", 0.0), "c1")]
        + [
            (name, share, (*_WAITS, "c3", "c6", "c8")[min(place, 6)])
            for place, (name, share) in enumerate(reasons)
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A stretch of the learner's waiting."""

    step: int
    """From 1."""
    stage: str
    task: str
    rollout: str
    seconds: float
    behind: str
    """What held the slot or scorer that was needed; empty where nothing did."""


def longest_waits(series: Series, most: int = 8) -> list[Wait]:
    """Over the last steps, the longest first."""
    first = series.length - len(series.accounts) + 1
    found = [
        Wait(
            step=first + place,
            stage=str(each.get("stage", "")),
            task=str(each.get("task", "")),
            rollout=str(each.get("rollout", "")),
            seconds=float(each.get("seconds", 0.0)),
            behind=str(each.get("behind", "")),
        )
        for place, account in enumerate(series.accounts)
        for each in account.get("path", ())
    ]
    return sorted(found, key=lambda wait: -wait.seconds)[:most]


def segments(parts: Sequence[tuple[str, float, str]]) -> list[Segment]:
    """A bar of (word, share, colour), one after another; the small ones are left out."""
    found, start = [], 0.0
    for word, share, colour in parts:
        if share >= _SMALLEST:
            found.append(Segment(word=word, start=start, share=share, colour=colour))
            start += share
    return found


def counted(counts: Mapping[str, int], colours: Mapping[str, str]) -> list[Segment]:
    """A bar of counts."""
    total = sum(counts.values())
    spare = iter(("c3", "c6", "c4", "c5", "c7", "c8") * (1 + len(counts)))
    return segments(
        [(word, n / total, colours.get(word) or next(spare)) for word, n in counts.items() if n]
    )
