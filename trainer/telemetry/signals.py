"""What the trainer tells OpenTelemetry, under the name `patchgym.trainer`: see docs/telemetry.md.

    step ─┬─ wait for groups
          ├─ pack, gradient, update      (in the learner's thread)
          ├─ publish
          └─ checkpoint

Only the API is used. Where no SDK is set up, all of this comes to nothing. What has a value at any
moment (a queue's depth) is in `gauges`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import Counter, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_VERSIONS = (0, 1, 2, 3, 4, 8)

_tracer = trace.get_tracer("patchgym.trainer")
_meter = metrics.get_meter("patchgym.trainer")


def _seconds(name: str, description: str) -> Histogram:
    return _meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS
    )


_stage = _seconds(
    "patchgym.learner.stage.duration",
    "Stages of a step: wait, pack, gradient, update, publish, checkpoint",
)
_step = _seconds("patchgym.learner.step.duration", "Steps, their wait for groups included")
_queue_wait = _seconds("patchgym.queue.wait", "Time that a group was in the queue when taken")
_staleness = _meter.create_histogram(
    "patchgym.staleness",
    "{version}",
    "Learner's version minus a group's oldest, when it is trained",
    explicit_bucket_boundaries_advisory=_VERSIONS,
)
_outcomes = _meter.create_counter(
    "patchgym.rollout.outcomes", "{rollout}", "Rollouts delivered, by how they ended"
)
_steps = _meter.create_counter("patchgym.learner.steps", "{step}", "Optimizer updates applied")
_tokens = _meter.create_counter(
    "patchgym.learner.tokens", "{token}", "Tokens learned from, prompts left out"
)
_alarms = _meter.create_counter("patchgym.alarms", "{alarm}", "What ought not to be, by kind")
_learner_idle = _meter.create_counter(
    "patchgym.learner.idle.time",
    "s",
    "The learner's time without an update under way, by reason, up to the last step",
)
_sampler_idle = _meter.create_counter(
    "patchgym.sampler.idle.time",
    "s",
    "The sampler's time without a turn, by what it waited for, up to the last step",
)


def step_applied(found: Mapping[str, object]) -> None:
    """An update was applied; `found` is what the ledger keeps of it."""
    _steps.add(1)
    for version, count in _numbers(found.get("staleness")).items():
        for _ in range(int(count)):
            _staleness.record(int(version))
    tokens = found.get("loss_tokens")
    _tokens.add(tokens if isinstance(tokens, int) else 0)
    idle = found.get("idle")
    account = idle if isinstance(idle, Mapping) else {}
    _spent(_learner_idle, account.get("learner"), "training")
    _spent(_sampler_idle, account.get("sampler"), "generating")


def _spent(counter: Counter, seconds: object, busy: str) -> None:
    for reason, part in _numbers(seconds).items():
        if reason != busy:
            counter.add(max(0.0, part), {"patchgym.idle.reason": reason})


def _numbers(value: object) -> dict[str, float]:
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else {}


def group_taken(seconds: float) -> None:
    """A group was taken that had been in the queue for so long."""
    _queue_wait.record(seconds)


def rollout_delivered(stop_reason: str) -> None:
    """A rollout has its reward, or none."""
    _outcomes.add(1, {"patchgym.stop_reason": stop_reason})


def alarm(kind: str) -> None:
    """Something ought not to be."""
    _alarms.add(1, {"patchgym.alarm": kind})


@contextmanager
def step_span(step: int) -> Iterator[None]:
    """A step of the learner, its wait included; the first of a trace."""
    started = time.perf_counter()
    with _tracer.start_as_current_span("step", Context()) as span:
        span.set_attribute("patchgym.step", step)
        yield
        # One that was given up says how long the patience was, not how long a step is.
        _step.record(time.perf_counter() - started)


@contextmanager
def stage_span(name: str) -> Iterator[None]:
    """A stage of a step."""
    started = time.perf_counter()
    with _tracer.start_as_current_span("wait for groups" if name == "wait" else name):
        try:
            yield
        finally:
            _stage.record(time.perf_counter() - started, {"patchgym.stage": name})


@contextmanager
def weights_span(what: str, version: int, server: str = "") -> Iterator[None]:
    """A part of publishing weights: they are written, or a server loads them."""
    with _tracer.start_as_current_span(f"{what} weights") as span:
        span.set_attribute("patchgym.policy_version", version)
        if server:
            span.set_attribute("server.address", server)
        yield


@contextmanager
def evaluation_span(name: str, tasks: int) -> Iterator[None]:
    """A held-out evaluation; not the current span, because each rollout is a trace of its own."""
    span = _tracer.start_span("evaluation", Context())
    span.set_attributes({"patchgym.evaluation": name, "patchgym.tasks": tasks})
    try:
        yield
    finally:
        span.end()
