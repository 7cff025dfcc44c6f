"""What of a run has a value at any moment: the queue's depth, what rollouts are in, seconds so far.

The event loop looks once a second and leaves a `Gauges` here; whatever thread collects reads that
and nothing else, so that no lock is held and nothing is read half-changed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

_meter = metrics.get_meter("patchgym.trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Where a run is at one moment."""

    policy_version: int = 0
    queue_depth: int = 0
    """Groups."""
    queue_capacity: int = 0
    """Groups."""
    open_groups: int = 0
    trained_groups: int = 0
    """Since the start of the run, earlier processes of it included."""
    dropped_groups: Mapping[str, int] = field(default_factory=dict)
    """By reason, since the start of this process."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """Rollouts by what they are in."""
    learner_seconds: Mapping[str, float] = field(default_factory=dict)
    """By kind of work, and `waiting`; they sum to the training's wall time."""
    sampler_seconds: Mapping[str, float] = field(default_factory=dict)
    """`generating` and `waiting`; they sum to the training's wall time."""
    sampler_running: int = 0
    """Turns being sampled."""
    sampler_queued: int = 0
    """Turns in line for a place in the batch."""
    sampled_tokens: int = 0
    """Since the start."""


@dataclass(slots=True)
class _Seen:
    """What collectors find."""

    gauges: Gauges | None = None
    step: Mapping[str, object] = field(default_factory=dict)
    """The last step's metrics."""
    since: float | None = None
    """When it was done, seconds of the monotonic clock."""
    rate: float | None = None


_seen = _Seen()


def show(gauges: Gauges) -> None:
    """Let this be what collectors find from now on."""
    _seen.gauges = gauges


def show_step(found: Mapping[str, object]) -> None:
    """The same of a step that was applied."""
    jax = sys.modules.get("jax")
    accelerators = 1 if jax is None else jax.device_count()
    now, tokens = time.monotonic(), _number(found.get("sampled_tokens"))
    if _seen.since is not None and now > _seen.since and tokens is not None:
        _seen.rate = tokens / (now - _seen.since) / max(1, accelerators)
    _seen.step, _seen.since = found, now


def clear() -> None:
    """The run is over: nothing has a value."""
    _seen.gauges = _seen.since = _seen.rate = None
    _seen.step = {}


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else None  # type: ignore[arg-type]


def _read(read: Callable[[Gauges], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        now = _seen.gauges
        return [] if now is None else [Observation(read(now))]

    return observe


def _each(
    label: str, read: Callable[[Gauges], Mapping[str, float]]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        now = _seen.gauges
        found = {} if now is None else read(now)
        return [Observation(value, {label: key}) for key, value in found.items()]

    return observe


def _of_step(key: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        found = _number(_seen.step.get(key))
        return [] if found is None else [Observation(found)]

    return observe


def _groups(options: CallbackOptions) -> Iterable[Observation]:
    now = _seen.gauges
    if now is None:
        return
    yield Observation(now.trained_groups, {"patchgym.group.state": "committed"})
    for reason, count in now.dropped_groups.items():
        labels = {"patchgym.group.state": "dropped", "patchgym.group.reason": reason}
        yield Observation(count, labels)


def _rate(options: CallbackOptions) -> Iterable[Observation]:
    return [] if _seen.rate is None else [Observation(_seen.rate)]


_GAUGES: tuple[tuple[str, str, str, Callable[[Gauges], float]], ...] = (
    ("patchgym.queue.depth", "{group}", "Groups in the queue", lambda g: g.queue_depth),
    ("patchgym.queue.capacity", "{group}", "Groups that it can hold", lambda g: g.queue_capacity),
    ("patchgym.groups.open", "{group}", "Groups being rolled out", lambda g: g.open_groups),
    (
        "patchgym.policy_version",
        "{version}",
        "Weights that turns begin on",
        lambda g: g.policy_version,
    ),
    ("patchgym.sampler.running", "{turn}", "Turns being sampled", lambda g: g.sampler_running),
    ("patchgym.sampler.queued", "{turn}", "Turns in line", lambda g: g.sampler_queued),
)
for _name, _unit, _words, _value in _GAUGES:
    _meter.create_observable_gauge(_name, [_read(_value)], _unit, _words)
_meter.create_observable_gauge(
    "patchgym.rollout.stages",
    [_each("patchgym.stage", lambda g: g.stages)],
    "{rollout}",
    "Rollouts by what they are in right now",
)
_meter.create_observable_counter(
    "patchgym.groups", [_groups], "{group}", "Groups trained, and those dropped by reason"
)
_meter.create_observable_counter(
    "patchgym.learner.time",
    [_each("patchgym.learner.state", lambda g: g.learner_seconds)],
    "s",
    "The learner's time: training, waiting, publishing, checkpointing, bookkeeping",
)
_meter.create_observable_counter(
    "patchgym.sampler.time",
    [_each("patchgym.sampler.state", lambda g: g.sampler_seconds)],
    "s",
    "The sampler's time: generating, waiting",
)
_meter.create_observable_counter(
    "patchgym.sampler.tokens", [_read(lambda g: g.sampled_tokens)], "{token}", "Tokens sampled"
)
_meter.create_observable_gauge(
    "patchgym.tokens_per_accelerator",
    [_rate],
    "{token}/s",
    "Tokens sampled between the last two steps, over wall seconds and accelerators",
)
_meter.create_observable_gauge(
    "patchgym.step.reward", [_of_step("reward")], "1", "Mean reward of the last step's rollouts"
)
_meter.create_observable_gauge(
    "patchgym.step.pass_rate", [_of_step("pass_rate")], "1", "Share of them that passed"
)
_meter.create_observable_gauge(
    "patchgym.step.mismatch",
    [_of_step("mismatch_mean")],
    "{nat}",
    "Mean difference of sampler and learner a token, in the last step",
)
_meter.create_observable_gauge(
    "patchgym.loop.blocked",
    [_of_step("loop_blocked")],
    "1",
    "Share of time in which the event loop was late, up to the last step",
)
