"""What this layer tells OpenTelemetry, under the name `patchgym.rewards`: see docs/telemetry.md.

    scoring ─┬─ component tests ── (what its verdict does in sandboxes)
             └─ component lint ...

Only the API is used. Where no SDK is set up, all of this comes to nothing.
"""

from __future__ import annotations

import time

from opentelemetry import metrics, trace
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from patchgym.sandbox.current_span import CurrentSpan

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


class ScoringSpan(CurrentSpan):
    """A rollout being scored."""

    __slots__ = ()

    def ended(self, reward: Reward) -> None:
        """What came of it."""
        known = "unknown" if reward.total is None else "known"
        _reward.record(reward.seconds, {"patchgym.reward.status": known})
        span = self.span
        if not span.is_recording():
            return
        about: dict[str, AttributeValue] = {
            "patchgym.reward.status": known,
            "patchgym.verdict.status": reward.verdict.status,
        }
        if reward.total is not None:
            about["patchgym.reward.total"] = reward.total
        else:
            span.set_status(trace.StatusCode.ERROR, reward.verdict.detail)
        span.set_attributes(about)


def scoring(parent: Span | None, rollout_id: str, waited: float) -> ScoringSpan:
    """A worker scores a rollout that waited `waited` seconds for it; part of the rollout's trace.

    A worker is another task than the rollout, so that the span must be handed over.
    """
    _queue.record(waited)
    context = None if parent is None else trace.set_span_in_context(parent)
    about: dict[str, str | float] = {
        "patchgym.rollout.id": rollout_id,
        "patchgym.reward.queue_seconds": waited,
    }
    return ScoringSpan(_tracer.start_span("scoring", context, attributes=about))


class ComponentSpan(CurrentSpan):
    """A component under way."""

    __slots__ = ("_name", "_started")

    def __init__(self, span: Span, name: str) -> None:
        super().__init__(span)
        self._name, self._started = name, time.perf_counter()

    def ended(self, score: Score) -> None:
        """Its score."""
        labels = {"patchgym.component": self._name, "patchgym.score.status": score.status}
        _component.record(time.perf_counter() - self._started, labels)
        span = self.span
        if not span.is_recording():
            return
        if score.status == "unknown":
            span.set_status(trace.StatusCode.ERROR, score.detail)
        value = {} if score.value is None else {"patchgym.score.value": score.value}
        span.set_attributes({**labels, **value})


def component(name: str) -> ComponentSpan:
    """A component whose gate is open, with what it needs: a verdict, linters."""
    return ComponentSpan(_tracer.start_span(f"component {name}"), name)
