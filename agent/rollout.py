"""One rollout: turns of policy and environment until the tests pass or the turns run out.

    prompt -> sample -> parse -> step -+-> solved | submitted | context_limit
               ^                       |
               +------ reply <---------+      any stage may also end it: policy_failed,
                                              sandbox_failed, deadline

A failure inside is data (rule 12): it comes back as a stop reason. Cancellation is re-raised.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import anyio

from patchgym.datasets.task import Task
from patchgym.sandbox import SandboxError

from .environment import RepairEnvironment
from .policy import Policy, SampleRequest
from .repair import STOP_TEXTS, RepairAgent
from .stop_reason import StopReason
from .trajectory import Trajectory, Turn

Stage = Literal["sampling", "tests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """Bounds of one rollout."""

    max_turns: int = 2
    """Answers the policy may give."""
    max_new_tokens: int = 48
    """Sampled ids in one turn."""
    context_tokens: int = 512
    """Ids in the whole trajectory."""
    seconds: float = 600.0
    """Wall seconds from start to end."""
    temperature: float = 1.0
    """Of the sampling distribution; 1 trains on the policy itself."""


def stream_seed(root: int, *path: object) -> int:
    """A 31-bit seed for the random stream named by `path` under `root`."""
    digest = hashlib.blake2b(repr((root, *path)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


async def rollout(
    *,
    task: Task,
    rollout_id: str,
    seed: int,
    agent: RepairAgent,
    environment: RepairEnvironment,
    policy: Policy,
    limits: RolloutLimits,
    on_stage: Callable[[Stage], None] = lambda stage: None,
) -> Trajectory:
    """Act on `task` until it ends; never raises for what a rollout may meet (see the module)."""
    started = time.monotonic()
    turns: list[Turn] = []
    error = ""
    reason: StopReason = "deadline"
    try:
        with anyio.move_on_after(limits.seconds):
            async with environment:
                act = _Act(task, rollout_id, seed, agent, environment, policy, limits, on_stage)
                reason = await act.run(turns)
    except _PolicyFailure as failure:
        reason, error = "policy_failed", str(failure)
    except SandboxError as failure:
        reason, error = "sandbox_failed", f"{type(failure).__name__}: {failure}"
    return Trajectory(
        rollout_id=rollout_id,
        task_id=task.id,
        seed=seed,
        turns=tuple(turns),
        stop_reason=reason,
        error=error,
        seconds=time.monotonic() - started,
    )


class _PolicyFailure(Exception):
    """The policy raised; carries its words."""


@dataclass(frozen=True, slots=True)
class _Act:
    task: Task
    rollout_id: str
    seed: int
    agent: RepairAgent
    environment: RepairEnvironment
    policy: Policy
    limits: RolloutLimits
    on_stage: Callable[[Stage], None]

    async def run(self, turns: list[Turn]) -> StopReason:
        """Append turns until an end is reached."""
        context = self.agent.prompt(self.task, await self.environment.source())
        history: tuple[int, ...] = ()
        while True:
            history += context
            if len(history) + self.limits.max_new_tokens > self.limits.context_tokens:
                return "context_limit"
            turn = await self._turn(len(turns), context, history)
            turns.append(turn)
            if turn.observation.done:
                return "solved"
            if len(turns) >= self.limits.max_turns:
                return "submitted"
            history += turn.completion.tokens
            context = self.agent.reply(turn.completion.tokens[-1], turn.observation)

    async def _turn(self, index: int, context: tuple[int, ...], history: tuple[int, ...]) -> Turn:
        self.on_stage("sampling")
        started = time.monotonic()
        request = SampleRequest(
            rollout_id=self.rollout_id,
            tokens=history,
            max_new_tokens=self.limits.max_new_tokens,
            stop=STOP_TEXTS,
            seed=stream_seed(self.seed, "turn", index),
            temperature=self.limits.temperature,
        )
        try:
            completion = await self.policy.sample(request)
        except Exception as failure:  # the boundary where a policy's failures become data
            raise _PolicyFailure(f"{type(failure).__name__}: {failure}") from failure
        sampled = time.monotonic()
        text = self.agent.tokenizer.decode(completion.tokens)
        answer = self.agent.parse(self.task, text)
        self.on_stage("tests")
        result = await self.environment.step(answer)
        return Turn(
            context=context,
            completion=completion,
            text=text,
            answer=answer.code,
            observation=result.observation,
            diff=result.diff,
            sample_seconds=sampled - started,
        )
