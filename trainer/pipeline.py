"""The rollout pipeline: slots that act, workers that score, one bounded stream between them.

source.next() -> slot x N: rollout -> (bounded) -> scorer x M -> deliver(item, rollout)

A slot     waits for the source (backpressure), the policy and a sandbox; it is refilled the
           moment it frees, never for a batch.
A scorer   waits for a sandbox.
The source decides what comes next, and blocks while nothing may start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from patchgym.agent import (
    EnvironmentConfig,
    Policy,
    RepairAgent,
    RepairEnvironment,
    RolloutLimits,
    Trajectory,
    rollout,
    rule_for,
)
from patchgym.datasets.task import Task
from patchgym.rewards import Reward, RewardConfig, Scorer, ScoreRequest, Verdict, run_workers
from patchgym.sandbox import Pool, Sandbox

from .config import SandboxSection, ScoringSection
from .group import WorkItem
from .idle import StageBoard

Deliver = Callable[[WorkItem, Trajectory, Reward], Awaitable[None]]


class Source(Protocol):
    """Where work comes from."""

    async def next(self) -> WorkItem | None:
        """The next rollout; None when there will be none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParts:
    """What the pipeline works with."""

    policy: Policy
    agent: RepairAgent
    pool: Pool
    judge: Callable[[Task, bytes], Awaitable[Verdict]]
    repositories: Path
    """Folder of the materialized bundled repositories."""
    board: StageBoard


class Pipeline:
    """Runs rollouts from a source and delivers them scored."""

    def __init__(
        self,
        parts: PipelineParts,
        *,
        limits: RolloutLimits,
        sandbox: SandboxSection,
        scoring: ScoringSection,
        reward: RewardConfig,
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._sandbox = sandbox
        self._scoring = scoring
        self.scorer = Scorer(parts.judge, reward, deadline=scoring.deadline)

    async def run(self, source: Source, deliver: Deliver, *, slots: int) -> None:
        """Run until the source has no more work and everything is delivered."""
        send, receive = anyio.create_memory_object_stream[ScoreRequest[Ticket]](self._scoring.queue)

        async def hand_over(ticket: Ticket, reward: Reward) -> None:
            trajectory = ticket.trajectory
            if reward.total is None and trajectory.stop_reason in ("solved", "submitted"):
                trajectory = dataclasses.replace(
                    trajectory, stop_reason="scoring_failed", error=reward.verdict.detail
                )
            self._parts.board.leave(trajectory.rollout_id)
            await deliver(ticket.item, trajectory, reward)

        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(run_workers, workers=self._scoring.workers),
                receive,
                self.scorer,
                hand_over,
            )
            async with send, anyio.create_task_group() as rollouts:
                for _ in range(slots):
                    rollouts.start_soon(self._slot, source, send.clone(), hand_over)

    async def _slot(
        self,
        source: Source,
        send: MemoryObjectSendStream[ScoreRequest[Ticket]],
        hand_over: Callable[[Ticket, Reward], Awaitable[None]],
    ) -> None:
        async with send:
            while (item := await source.next()) is not None:
                trajectory = await self._act(item)
                ticket = Ticket(item, trajectory)
                if not rule_for(trajectory.stop_reason).in_baseline:
                    await hand_over(ticket, unscored(trajectory))
                    continue
                self._parts.board.move(item.rollout_id, "scoring")
                await send.send(ScoreRequest(task=item.task, diff=trajectory.diff, ticket=ticket))

    async def _act(self, item: WorkItem) -> Trajectory:
        parts = self._parts
        board, name = parts.board, item.rollout_id
        board.move(name, "sampling")
        config = EnvironmentConfig(
            tests_timeout=self._sandbox.tests_timeout, repositories=parts.repositories
        )

        @asynccontextmanager
        async def lease() -> AsyncIterator[Sandbox]:
            board.move(name, "lease wait")
            async with parts.pool.lease(timeout=self._sandbox.lease_timeout) as sandbox:
                board.move(name, "tests")
                yield sandbox

        return await rollout(
            task=item.task,
            rollout_id=name,
            seed=item.seed,
            agent=parts.agent,
            environment=RepairEnvironment(item.task, lease, config),
            policy=parts.policy,
            limits=self._limits,
            on_stage=partial(board.move, name),
        )


@dataclass(frozen=True, slots=True)
class Ticket:
    item: WorkItem
    trajectory: Trajectory


def unscored(trajectory: Trajectory) -> Reward:
    """The reward of a rollout that is not scored at all: unknown."""
    detail = trajectory.error or trajectory.stop_reason
    return Reward(
        total=None,
        scores=(),
        verdict=Verdict(status="unknown", evidence="infra", detail=detail),
    )
