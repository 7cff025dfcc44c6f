"""Numbers and times as people read them, for templates."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping

EMPTY = "\N{EN DASH}"
"""Stands for a number that is not there."""


def number(value: float | None, digits: int = 2) -> str:
    """`digits` after the point."""
    return EMPTY if _missing(value) else f"{value:z.{digits}f}"


def count(value: float | None) -> str:
    """1234567 as 1,234,567."""
    return EMPTY if _missing(value) else f"{value:,.0f}"


def short_count(value: float | None) -> str:
    """1234567 as 1.23M."""
    if value is None or _missing(value):
        return EMPTY
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit * 10 or (letter != "k" and abs(value) >= limit):
            return f"{value / limit:.3g}{letter}"
    return f"{value:,.0f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A share of 1."""
    return EMPTY if value is None or _missing(value) else f"{100 * value:.{digits}f}%"


def duration(seconds: float | None) -> str:
    """0.0042 as 4 ms, 75 as 1 m 15 s."""
    if seconds is None or _missing(seconds):
        return EMPTY
    if seconds < 1:
        return f"{1000 * seconds:.{3 if seconds >= 0.001 else 1}g} ms" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 59.95 else "60 s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if hours < 48 else f"{hours // 24} d {hours % 24:02d} h"


def moment(at: float | None) -> str:
    """A time since the epoch, as local time here."""
    if at is None or _missing(at):
        return EMPTY
    return datetime.datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def size(value: float | None) -> str:
    """Bytes."""
    if value is None or _missing(value):
        return EMPTY
    for limit, word in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value / limit:.3g} {word}"
    return f"{value:.0f} B"


def tone(state: str) -> str:
    """How a state is coloured: good, bad, warn, live or calm."""
    first = state.split(" ", 1)[0]
    return TONES.get(first, "calm")


TONES: Mapping[str, str] = {
    "running": "live",
    "finished": "good",
    "resolved": "good",
    "solved": "good",
    "passed": "good",
    "committed": "good",
    "failed": "bad",
    "gone": "bad",
    "error": "bad",
    "infra": "bad",
    "stalled": "bad",
    "dropped": "warn",
    "silent": "warn",
    "stopped": "warn",
    "timeout": "warn",
    "alarm": "warn",
    "unknown": "warn",
}
"""By the first word of a state, outcome or event."""

FILTERS = {
    "number": number,
    "count": count,
    "short_count": short_count,
    "percent": percent,
    "duration": duration,
    "moment": moment,
    "size": size,
    "tone": tone,
}
"""By their names in templates."""


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)
