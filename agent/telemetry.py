"""What this layer tells OpenTelemetry, under the name `patchgym.agent`: see docs/telemetry.md.

    rollout ─┬─ open
             ├─ turn ─┬─ text_completion MODEL
             │        └─ execute_tool NAME ...
             └─ outcome

Only the API is used. Where no SDK is set up, all of this comes to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from patchgym.sandbox.current_span import CurrentSpan, TimedSpan

from .action import Observation, ToolSpec
from .policy import Completion, SampleRequest
from .trajectory import Trajectory

if TYPE_CHECKING:
    from typing import Self

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)
_TURNS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_ERROR_TYPE, _OPERATION = "error.type", "gen_ai.operation.name"
_PROVIDER = {"gen_ai.provider.name": "patchgym"}
_SAMPLING: Mapping[str, str] = {**_PROVIDER, _OPERATION: "text_completion"}
_INPUT: Mapping[str, str] = {**_SAMPLING, "gen_ai.token.type": "input"}
_OUTPUT: Mapping[str, str] = {**_SAMPLING, "gen_ai.token.type": "output"}

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
    about: dict[str, str | int] = {
        _OPERATION: "invoke_agent",
        **_PROVIDER,
        "patchgym.task.id": task_id,
        "patchgym.rollout.id": rollout_id,
    }
    for name, value in more.items():
        about[f"patchgym.{name}"] = value
    return _tracer.start_span("rollout", parent, attributes=about)


class RolloutSpan(CurrentSpan):
    """A rollout under way."""

    __slots__ = ()

    def __enter__(self) -> Self:
        _active.add(1)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, where)
        _active.add(-1)

    def ended(self, trajectory: Trajectory) -> None:
        """What came of it."""
        reason = trajectory.stop_reason
        _rollout.record(trajectory.seconds, {"patchgym.stop_reason": reason})
        _turns.record(len(trajectory.turns))
        span = self.span
        if not span.is_recording():
            return
        about: dict[str, AttributeValue] = {
            "patchgym.stop_reason": reason,
            "patchgym.rollout.turns": len(trajectory.turns),
            "patchgym.policy_version": trajectory.oldest_version,
            "gen_ai.usage.output_tokens": trajectory.sampled_tokens,
        }
        if trajectory.error:
            about[_ERROR_TYPE] = reason
            span.set_status(trace.StatusCode.ERROR, trajectory.error)
        span.set_attributes(about)


def acting(span: Span | None, task_id: str, rollout_id: str) -> RolloutSpan:
    """A rollout, in the span that its caller began or in one of its own."""
    return RolloutSpan(span if span is not None else _begin(task_id, rollout_id, None))


def part(name: str) -> CurrentSpan:
    """A part of a rollout besides its turns: `open` or `outcome`."""
    return CurrentSpan(_tracer.start_span(name))


def turn(index: int, *, replayed: bool) -> CurrentSpan:
    """A turn, `index` from 0."""
    about = {"patchgym.turn": index}
    if replayed:
        about["patchgym.replayed"] = True
    return CurrentSpan(_tracer.start_span("turn", attributes=about))


class _Asked(TimedSpan):
    """Something that the rollout waits for."""

    __slots__ = ()

    def failure(self, error: Exception) -> str:
        """What failed, in a word: an error's own, or its type."""
        if error.__cause__ is not None:
            return type(error.__cause__).__qualname__
        return str(getattr(error, "reason", "")) or type(error).__qualname__


class SampleSpan(_Asked):
    """A turn being sampled."""

    __slots__ = ()

    def ended(self, completion: Completion) -> None:
        """What the policy gave."""
        count = len(completion.tokens)
        _tokens.record(count, _OUTPUT)
        if self.span.is_recording():
            self.span.set_attributes(
                {
                    "gen_ai.usage.output_tokens": count,
                    "gen_ai.response.finish_reasons": [completion.finish],
                    "patchgym.policy_version": completion.policy_version,
                }
            )


def sampling(request: SampleRequest, model: str) -> SampleSpan:
    """The policy is asked for a turn."""
    _tokens.record(len(request.tokens), _INPUT)
    name = f"text_completion {model}" if model else "text_completion"
    span = _tracer.start_span(name, kind=SpanKind.CLIENT, attributes=_asked(request, model))
    return SampleSpan(span, _sampling, _SAMPLING)


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


class ToolSpan(_Asked):
    """A tool call under way."""

    __slots__ = ()

    def ended(self, observation: Observation) -> None:
        """What the tool answered."""
        if self.span.is_recording():
            self.span.set_attributes(
                {
                    "patchgym.observation.kind": observation.kind,
                    "patchgym.observation.done": observation.done,
                }
            )


def tool_call(name: str, tools: Sequence[ToolSpec]) -> ToolSpan:
    """A call of the tool `name`; one that isn't there is `_other`, or a model's inventions would
    make as many series as it has ideas."""
    known = name if any(tool.name == name for tool in tools) else "_other"
    about = {_OPERATION: "execute_tool", "gen_ai.tool.name": name[:100]}
    span = _tracer.start_span(f"execute_tool {known}", attributes=about)
    return ToolSpan(span, _tool, {"gen_ai.tool.name": known})
