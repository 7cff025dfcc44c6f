"""One rollout: turns of policy and environment until the work is done or a limit is met.

    open -> sample -> act -> step -+-> solved | submitted | turn_limit | context_limit
              ^                    |
              +------ reply <------+      any stage may also end it: policy_failed, sandbox_failed,
                                          environment_failed, deadline, straggler

A failure inside is data (rule 12): it comes back as a stop reason. Cancellation is re-raised. What
the policy sampled is kept as ids and goes back to it as ids; agent and environment see each other
only through calls and observations.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
from opentelemetry.trace import Span

from patchgym.sandbox import SandboxError

from . import telemetry
from .action import Action, Observation, ToolCall, format_error
from .agent import Agent, Context
from .environment import Environment
from .policy import Completion, Policy, SampleRequest, check_completion
from .stop_reason import StopReason
from .trajectory import Trajectory, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """Bounds of one rollout."""

    max_turns: int = 2
    """Answers the policy may give."""
    max_new_tokens: int = 48
    """Sampled ids in one turn."""
    context_tokens: int = 512
    """Ids in the whole trajectory; of one segment, where the agent rewrites its history."""
    seconds: float = 600.0
    """Wall seconds from start to end."""
    turn_seconds: float = 600.0
    """Wall seconds to sample one turn."""
    tool_seconds: float = 600.0
    """Wall seconds of one tool call, a wait for its sandbox included; tools have limits of their
    own below this one, and a call that passes it failed with the environment."""
    temperature: float = 1.0
    """Of the sampling distribution; 1 trains on the policy itself."""


def stream_seed(root: int, *path: object) -> int:
    """A 31-bit seed for the random stream named by `path` under `root`."""
    digest = hashlib.blake2b(repr((root, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


@dataclass(slots=True)
class Straggle:
    """A handle on a running rollout: `cancel` ends it as data, with the turns that it has."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    asked: bool = False

    def cancel(self) -> None:
        """Stop the rollout; its stop reason will be `straggler`."""
        self.asked = True
        self.scope.cancel()


async def rollout(
    *,
    task_id: str,
    rollout_id: str,
    seed: int,
    agent: Agent,
    environment: Environment,
    policy: Policy,
    limits: RolloutLimits,
    on_stage: Callable[[str], None] = lambda stage: None,
    earlier: Sequence[Turn] = (),
    straggle: Straggle | None = None,
    model: str = "",
    span: Span | None = None,
) -> Trajectory:
    """Act on a task until it ends; never raises for what a rollout may meet (see the module).

    `earlier` are the turns of a partial rollout of the same task and seed: their calls are made
    again without asking the policy, and sampling goes on after them. From the first one on to which
    the agent or the environment answers differently than it did then, they are let go. `model` is
    the policy's name in spans; `span` is the rollout's own, from `rollout_span`, where the caller
    hangs more on it.
    """
    act = _Act(rollout_id, seed, agent, environment, policy, limits, on_stage, model, list(earlier))
    with telemetry.acting(span, task_id, rollout_id) as told:
        trajectory = await _act(act, task_id, straggle or Straggle())
        told.ended(trajectory)
    return trajectory


async def _act(act: _Act, task_id: str, handle: Straggle) -> Trajectory:
    started = time.monotonic()
    limits, environment = act.limits, act.environment
    reason: StopReason = "deadline"
    error = f"not over after {limits.seconds:.0f} s"
    outcome = b""
    try:
        with handle.scope, anyio.move_on_after(limits.seconds):
            async with environment:
                ended = await act.run()
                act.on_stage("outcome")
                with telemetry.part("outcome"):
                    outcome = await environment.outcome()
            reason, error = ended, ""
        if handle.asked and reason == "deadline":
            reason, error = "straggler", f"cancelled after {time.monotonic() - started:.0f} s"
    except _Ended as end:
        reason, error = end.reason, str(end)
    except SandboxError as failure:
        reason, error = "sandbox_failed", f"{type(failure).__name__}: {failure}"
    except Exception as failure:  # the boundary where an environment's failures become data
        reason, error = "environment_failed", f"{type(failure).__name__}: {failure}"
    return Trajectory(
        rollout_id=act.rollout_id,
        task_id=task_id,
        seed=act.seed,
        turns=tuple(act.turns),
        stop_reason=reason,
        outcome=outcome,
        error=error,
        seconds=time.monotonic() - started,
        replayed=act.replayed,
    )


class _Ended(Exception):
    """The rollout ends here for `reason`."""

    def __init__(self, reason: StopReason, words: str) -> None:
        super().__init__(words)
        self.reason: StopReason = reason


@dataclass(slots=True)
class _Act:
    rollout_id: str
    seed: int
    agent: Agent
    environment: Environment
    policy: Policy
    limits: RolloutLimits
    on_stage: Callable[[str], None]
    model: str
    earlier: list[Turn]
    turns: list[Turn] = field(default_factory=list)
    replayed: int = 0

    async def run(self) -> StopReason:
        """Append turns until an end is reached."""
        limits = self.limits
        room = limits.context_tokens - limits.max_new_tokens
        with telemetry.part("open"):
            opening = await self.environment.open()
        context = self.agent.open(opening, self.environment.tools, room=room)
        history: tuple[int, ...] = ()
        while True:
            history = context.tokens if context.restarts else history + context.tokens
            if len(history) > room:
                return "context_limit"
            turn = await self._turn(context, history)
            if turn.done:
                return "submitted" if turn.handed_in else "solved"
            if len(self.turns) >= limits.max_turns:
                return "submitted" if self.environment.answers else "turn_limit"
            history += turn.completion.tokens
            context = self.agent.reply(turn.observations, room=room)

    async def _turn(self, context: Context, history: tuple[int, ...]) -> Turn:
        recorded = self._recorded(context)
        with telemetry.turn(len(self.turns), replayed=recorded is not None):
            return await self._take_turn(context, history, recorded)

    async def _take_turn(
        self, context: Context, history: tuple[int, ...], recorded: Turn | None
    ) -> Turn:
        started = time.monotonic()
        completion = await self._sample(history) if recorded is None else recorded.completion
        sampled = time.monotonic()
        action = self.agent.act(completion)
        turn = Turn(
            context=context.tokens,
            restarts=context.restarts,
            completion=completion,
            text=action.text,
            calls=action.calls,
            sample_seconds=sampled - started if recorded is None else recorded.sample_seconds,
        )
        # Noted before the environment is asked, so that a failure there loses no sampled id.
        self.turns.append(turn)
        observations = await self._observe(action)
        turn = replace(turn, observations=observations, tool_seconds=time.monotonic() - sampled)
        self.turns[-1] = turn
        self._compare(recorded, observations)
        return turn

    def _recorded(self, context: Context) -> Turn | None:
        """The turn of an earlier attempt that goes here, while the two are alike."""
        if not self.earlier:
            return None
        turn = self.earlier.pop(0)
        # A turn without observations was cut off: whether its calls were made isn't known.
        if turn.context != context.tokens or not turn.observations:
            self.earlier.clear()
            return None
        return turn

    def _compare(self, recorded: Turn | None, observations: tuple[Observation, ...]) -> None:
        if recorded is None:
            return
        self.replayed += 1
        if [o.text for o in observations] != [o.text for o in recorded.observations]:
            self.earlier.clear()

    async def _sample(self, history: tuple[int, ...]) -> Completion:
        self.on_stage("sampling")
        index, limits = len(self.turns), self.limits
        request = SampleRequest(
            rollout_id=self.rollout_id,
            tokens=history,
            max_new_tokens=limits.max_new_tokens,
            stop=self.agent.stop,
            seed=stream_seed(self.seed, "turn", index),
            temperature=limits.temperature,
        )
        with telemetry.sampling(request, self.model) as told:
            try:
                with anyio.move_on_after(limits.turn_seconds):
                    completion = check_completion(request, await self.policy.sample(request))
                    told.ended(completion)
                    return completion
            except Exception as failure:  # the boundary where a policy's failures become data
                words = f"{type(failure).__name__}: {failure}"
                raise _Ended("policy_failed", words) from failure
            words = f"turn {index + 1} was not sampled in {limits.turn_seconds:.0f} s"
            raise _Ended("deadline", words)

    async def _observe(self, action: Action) -> tuple[Observation, ...]:
        """The environment's answers to the calls, in order, up to one that ends the rollout."""
        if not action.calls:
            return (format_error(action.problem),)
        observations: list[Observation] = []
        for call in action.calls:
            self.on_stage(f"tool {call.name}")
            observations.append(await self._call(call))
            if observations[-1].done:
                break
        return tuple(observations)

    async def _call(self, call: ToolCall) -> Observation:
        limit = self.limits.tool_seconds
        with telemetry.tool_call(call.name, self.environment.tools) as told:
            with anyio.move_on_after(limit):
                observation = await self.environment.step(call)
                told.ended(observation)
                return observation
            words = f"the tool {call.name} did not answer in {limit:.0f} s"
            raise _Ended("environment_failed", words)
