"""What this layer tells OpenTelemetry, under the name `patchgym.agent`: see docs/telemetry.md.

    rollout ─┬─ open
             ├─ turn ─┬─ text_completion MODEL
             │        └─ execute_tool NAME ...
             └─ outcome

Only the API is used. Where no SDK is set up, all of this comes to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind

from .action import Observation, ToolSpec
from .policy import Completion, SampleRequest
from .trajectory import Trajectory

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_TURNS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_ERROR_TYPE, _OPERATION = "error.type", "gen_ai.operation.name"
_PROVIDER = {"gen_ai.provider.name": "patchgym"}
_SAMPLING: Mapping[str, str] = {**_PROVIDER, _OPERATION: "text_completion"}

_tracer = trace.get_tracer("patchgym.agent")
_meter = metrics.get_meter("patchgym.agent")
_rollout = _meter.create_histogram(
    "patchgym.rollout.duration",
    "s",
    "Rollouts from start to end, waits included, by how they ended",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_turns = _meter.create_histogram(
    "patchgym.rollout.turns",
    "{turn}",
    "Turns of a rollout",
    explicit_bucket_boundaries_advisory=_TURNS,
)
_active = _meter.create_up_down_counter(
    "patchgym.rollout.active", "{rollout}", "Rollouts under way"
)
_sampling = _meter.create_histogram(
    "gen_ai.client.operation.duration",
    "s",
    "Generation: from asking the policy to its whole answer",
    explicit_bucket_boundaries_advisory=_SECONDS,
)
_tokens = _meter.create_histogram(
    "gen_ai.client.token.usage",
    "{token}",
    "Tokens of a turn's context (input) and completion (output)",
    explicit_bucket_boundaries_advisory=_TOKENS,
)
_tool = _meter.create_histogram(
    "patchgym.tool.duration",
    "s",
    "Tool calls, a wait for a sandbox included, by tool",
    explicit_bucket_boundaries_advisory=_SECONDS,
)


def rollout_span(task_id: str, rollout_id: str, **more: str | int) -> Span:
    """Begin the span of a rollout, the first of a trace; hand it to `rollout`, which ends it.

    For callers that hang more on it, such as the scoring. `more` are `patchgym.*` attributes.
    """
    return _begin(task_id, rollout_id, Context(), **more)


def _begin(task_id: str, rollout_id: str, parent: Context | None, **more: str | int) -> Span:
    span = _tracer.start_span("rollout", parent)
    if span.is_recording():
        span.set_attributes(
            {
                _OPERATION: "invoke_agent",
                **_PROVIDER,
                "patchgym.task.id": task_id,
                "patchgym.rollout.id": rollout_id,
                **{f"patchgym.{name}": value for name, value in more.items()},
            }
        )
    return span


class RolloutSpan:
    """A rollout under way."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, trajectory: Trajectory) -> None:
        """What came of it."""
        reason = trajectory.stop_reason
        _rollout.record(trajectory.seconds, {"patchgym.stop_reason": reason})
        _turns.record(len(trajectory.turns))
        span = self._span
        if not span.is_recording():
            return
        span.set_attribute("patchgym.stop_reason", reason)
        span.set_attribute("patchgym.rollout.turns", len(trajectory.turns))
        span.set_attribute("patchgym.policy_version", trajectory.oldest_version)
        span.set_attribute("gen_ai.usage.output_tokens", trajectory.sampled_tokens)
        if trajectory.error:
            span.set_attribute(_ERROR_TYPE, reason)
            span.set_status(trace.StatusCode.ERROR, trajectory.error)


@contextmanager
def acting(span: Span | None, task_id: str, rollout_id: str) -> Iterator[RolloutSpan]:
    """A rollout, in the span that its caller began or in one of its own."""
    mine = span if span is not None else _begin(task_id, rollout_id, None)
    _active.add(1)
    try:
        with trace.use_span(mine, end_on_exit=True):
            yield RolloutSpan(mine)
    finally:
        _active.add(-1)


@contextmanager
def part(name: str) -> Iterator[None]:
    """A part of a rollout besides its turns: `open` or `outcome`."""
    with _tracer.start_as_current_span(name):
        yield


@contextmanager
def turn(index: int, *, replayed: bool) -> Iterator[None]:
    """A turn, `index` from 0."""
    with _tracer.start_as_current_span("turn") as span:
        span.set_attribute("patchgym.turn", index)
        if replayed:
            span.set_attribute("patchgym.replayed", True)
        yield


class SampleSpan:
    """A turn being sampled."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, completion: Completion) -> None:
        """What the policy gave."""
        count = len(completion.tokens)
        _tokens.record(count, {**_SAMPLING, "gen_ai.token.type": "output"})
        span = self._span
        if span.is_recording():
            span.set_attribute("gen_ai.usage.output_tokens", count)
            span.set_attribute("gen_ai.response.finish_reasons", [completion.finish])
            span.set_attribute("patchgym.policy_version", completion.policy_version)


@contextmanager
def sampling(request: SampleRequest, model: str) -> Iterator[SampleSpan]:
    """The policy is asked for a turn."""
    started = time.perf_counter()
    labels = dict(_SAMPLING)
    _tokens.record(len(request.tokens), {**_SAMPLING, "gen_ai.token.type": "input"})
    name = f"text_completion {model}" if model else "text_completion"
    with _tracer.start_as_current_span(name, kind=SpanKind.CLIENT) as span:
        if span.is_recording():
            span.set_attributes(_asked(request, model))
        try:
            yield SampleSpan(span)
        except Exception as error:
            labels[_ERROR_TYPE] = _kind(error)
            span.set_attribute(_ERROR_TYPE, labels[_ERROR_TYPE])
            raise
        finally:
            _sampling.record(time.perf_counter() - started, labels)


def _asked(request: SampleRequest, model: str) -> dict[str, str | int | float]:
    about: dict[str, str | int | float] = {
        **_SAMPLING,
        "gen_ai.conversation.id": request.rollout_id,
        "gen_ai.request.max_tokens": request.max_new_tokens,
        "gen_ai.request.seed": request.seed,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.usage.input_tokens": len(request.tokens),
    }
    if model:
        about["gen_ai.request.model"] = model
    return about


class ToolSpan:
    """A tool call under way."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def ended(self, observation: Observation) -> None:
        """What the tool answered."""
        if self._span.is_recording():
            self._span.set_attribute("patchgym.observation.kind", observation.kind)
            self._span.set_attribute("patchgym.observation.done", observation.done)


@contextmanager
def tool_call(name: str, tools: Sequence[ToolSpec]) -> Iterator[ToolSpan]:
    """A call of the tool `name`; one that isn't there is `_other`, or a model's inventions would
    make as many series as it has ideas."""
    started = time.perf_counter()
    known = name if any(tool.name == name for tool in tools) else "_other"
    labels = {"gen_ai.tool.name": known}
    with _tracer.start_as_current_span(f"execute_tool {known}") as span:
        if span.is_recording():
            span.set_attributes({_OPERATION: "execute_tool", "gen_ai.tool.name": name[:100]})
        try:
            yield ToolSpan(span)
        except Exception as error:
            labels[_ERROR_TYPE] = _kind(error)
            span.set_attribute(_ERROR_TYPE, labels[_ERROR_TYPE])
            raise
        finally:
            _tool.record(time.perf_counter() - started, labels)


def _kind(error: Exception) -> str:
    """What failed, in a word: an error's own, or its type."""
    if error.__cause__ is not None:
        return type(error.__cause__).__qualname__
    return str(getattr(error, "reason", "")) or type(error).__qualname__
