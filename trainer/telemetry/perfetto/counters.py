"""What is drawn as curves: how many of each kind are under way, and metrics as collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from patchgym.trainer.telemetry.span_file import SpanRecord

from .groups import is_sampling

Curve = list[tuple[float, float]]
"""Seconds since the epoch, and the value from then on."""

_UNDER_WAY: dict[str, Callable[[SpanRecord], bool]] = {
    "rollouts under way": lambda span: span.name == "rollout",
    "turns being sampled": is_sampling,
    "rollouts being scored": lambda span: span.name == "scoring",
    "waiting for a sandbox": lambda span: span.name == "lease wait",
    "sandboxes leased": lambda span: span.name == "lease",
}
_VALUES = {
    "patchgym.queue.depth": "groups in the queue",
    "patchgym.groups.open": "groups being rolled out",
    "patchgym.sampler.queued": "turns in line",
}
_TIMES = {
    "patchgym.learner.time": ("learner idle, %", "patchgym.learner.state", "training"),
    "patchgym.sampler.time": ("sampler idle, %", "patchgym.sampler.state", "generating"),
}
"""Seconds by state, what their curve is called, and the state that is no idling."""


def under_way(spans: Sequence[SpanRecord]) -> dict[str, Curve]:
    """Spans of each kind that were open at the same time, as far as `spans` goes."""
    curves = {name: _open([s for s in spans if of(s)]) for name, of in _UNDER_WAY.items()}
    return {name: curve for name, curve in curves.items() if curve}


def _open(spans: Sequence[SpanRecord]) -> Curve:
    changes = [(span.start, 1) for span in spans] + [(span.end, -1) for span in spans]
    curve: Curve = []
    count = 0
    for at, change in sorted(changes):
        count += change
        if curve and curve[-1][0] == at:
            curve.pop()
        curve.append((at, count))
    return curve


def collected(lines: Iterable[Mapping[str, Any]], since: float) -> dict[str, Curve]:
    """Curves of the lines of `metrics.jsonl` that were written after `since`."""
    curves: dict[str, Curve] = {}
    before: dict[str, dict[str, float]] = {}
    for line in lines:
        at = float(line.get("time", 0.0))
        for metric in line.get("metrics", ()):
            name, points = metric.get("name"), metric.get("points", ())
            if name in _VALUES and points:
                found: tuple[str, float] | None = (_VALUES[name], points[0]["value"])
            elif name in _TIMES:
                found = _idle(name, points, before)
            else:
                continue
            if found is not None and since <= at:
                curves.setdefault(found[0], []).append((at, found[1]))
    return curves


def _idle(
    name: str, points: Sequence[Mapping[str, Any]], before: dict[str, dict[str, float]]
) -> tuple[str, float] | None:
    """The share since the last line that was not the busy state, in percent."""
    title, label, busy = _TIMES[name]
    now = {point["attributes"][label]: float(point["value"]) for point in points}
    last = before.get(name, {})
    before[name] = now
    gone = {state: value - last.get(state, 0.0) for state, value in now.items()}
    whole = sum(gone.values())
    if whole <= 0 or min(gone.values()) < 0:  # the run was resumed, or has just begun
        return None
    return title, 100 * (1 - gone.get(busy, 0.0) / whole)
