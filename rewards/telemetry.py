"""What this layer tells OpenTelemetry, under the name `patchgym.rewards`: see docs/telemetry.md.

    scoring ─┬─ component tests ── (what its verdict does in sandboxes)
             └─ component lint ...

Only the API is used. Where no SDK is set up, all of this comes to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Span

from .base import Reward, Score

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_tracer = trace.get_tracer("patchgym.rewards")
_meter = metrics.get_meter("patchgym.rewards")


def _seconds(name: str, description: str) -> Histogram:
    return _meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS
    )


_reward = _seconds("patchgym.reward.duration", "Scoring of a rollout, by whether it is known")
_queue = _seconds("patchgym.reward.queue.wait", "Wait of a finished rollout for a reward worker")
_component = _seconds(
    "patchgym.reward.component.duration",
    "A component of the reward, what it needs included, by its status",
)


class ScoringSpan:
    """A rollout being scored."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, reward: Reward) -> None:
        """What came of it."""
        known = "unknown" if reward.total is None else "known"
        _reward.record(reward.seconds, {"patchgym.reward.status": known})
        span = self._span
        if not span.is_recording():
            return
        span.set_attribute("patchgym.reward.status", known)
        span.set_attribute("patchgym.verdict.status", reward.verdict.status)
        if reward.total is not None:
            span.set_attribute("patchgym.reward.total", reward.total)
        else:
            span.set_status(trace.StatusCode.ERROR, reward.verdict.detail)


@contextmanager
def scoring(parent: Span | None, rollout_id: str, waited: float) -> Iterator[ScoringSpan]:
    """A worker scores a rollout that waited `waited` seconds for it; part of the rollout's trace.

    A worker is another task than the rollout, so that the span must be handed over.
    """
    _queue.record(waited)
    context = None if parent is None else trace.set_span_in_context(parent)
    with _tracer.start_as_current_span("scoring", context) as span:
        if span.is_recording():
            span.set_attribute("patchgym.rollout.id", rollout_id)
            span.set_attribute("patchgym.reward.queue_seconds", waited)
        yield ScoringSpan(span)


class ComponentSpan:
    """A component under way."""

    __slots__ = ("_name", "_span", "_started")

    def __init__(self, span: Span, name: str) -> None:
        self._span, self._name, self._started = span, name, time.perf_counter()

    def ended(self, score: Score) -> None:
        """Its score."""
        labels = {"patchgym.component": self._name, "patchgym.score.status": score.status}
        _component.record(time.perf_counter() - self._started, labels)
        span = self._span
        if span.is_recording():
            span.set_attributes(labels)
            if score.value is not None:
                span.set_attribute("patchgym.score.value", score.value)
            if score.status == "unknown":
                span.set_status(trace.StatusCode.ERROR, score.detail)


@contextmanager
def component(name: str) -> Iterator[ComponentSpan]:
    """A component whose gate is open, with what it needs: a verdict, linters."""
    with _tracer.start_as_current_span(f"component {name}") as span:
        yield ComponentSpan(span, name)
