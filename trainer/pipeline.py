"""The rollout pipeline: slots that act, workers that score, one bounded stream between them.

source.next() -> slot x N: rollout -> (bounded) -> scorer x M -> deliver(item, rollout)

A slot     waits for admission, the source (backpressure), the policy and a sandbox; it is refilled
           the moment it frees, never for a batch.
A scorer   waits for what scoring needs: a sandbox, mostly.
The source decides what comes next, and blocks while nothing may start.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from patchgym.agent import (
    AgentFactory,
    Policy,
    RolloutLimits,
    Straggle,
    Trajectory,
    rollout,
    rule_for,
)
from patchgym.rewards import Reward, ScoreRequest, Verdict, run_workers

from .admission import Admission
from .config import ScoringSection
from .domain import Domain
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
    agents: AgentFactory
    domain: Domain
    board: StageBoard
    admission: Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A rollout under way."""

    item: WorkItem
    straggle: Straggle
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Wall seconds so far."""
        return time.monotonic() - self.started


class Pipeline:
    """Runs rollouts from a source and delivers them scored."""

    def __init__(
        self, parts: PipelineParts, *, limits: RolloutLimits, scoring: ScoringSection
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._scoring = scoring
        self._flights: dict[str, Flight] = {}
        self._flown = 0.0

    async def run(self, source: Source, deliver: Deliver, *, slots: int) -> None:
        """Run until the source has no more work and everything is delivered."""
        send, receive = anyio.create_memory_object_stream[ScoreRequest[Ticket]](self._scoring.queue)

        async def hand_over(ticket: Ticket, reward: Reward) -> None:
            trajectory = ticket.trajectory
            if reward.total is None and rule_for(trajectory.stop_reason).scored:
                trajectory = dataclasses.replace(
                    trajectory, stop_reason="scoring_failed", error=reward.verdict.detail
                )
            self._parts.board.leave(trajectory.rollout_id)
            await deliver(ticket.item, trajectory, reward)

        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(run_workers, workers=self._scoring.workers), receive, hand_over
            )
            watch = anyio.CancelScope()
            group.start_soon(self._admit, watch)
            async with send, anyio.create_task_group() as rollouts:
                for slot in range(slots):
                    rollouts.start_soon(self._slot, slot, source, send.clone(), hand_over)
            watch.cancel()

    def flights(self) -> list[Flight]:
        """Rollouts under way, the oldest first."""
        return list(self._flights.values())

    @property
    def slot_seconds(self) -> float:
        """Seconds that slots had a rollout in them, summed over slots, since the start."""
        return self._flown + sum(flight.seconds for flight in self._flights.values())

    def cancel(self, rollout_id: str) -> None:
        """End a rollout as a straggler, if it is still under way."""
        flight = self._flights.get(rollout_id)
        if flight is not None:
            flight.straggle.cancel()

    async def _admit(self, scope: anyio.CancelScope) -> None:
        """Follow the policy's load; past the limit the youngest rollouts go, they lose least."""
        admission = self._parts.admission
        with scope:
            while True:
                await anyio.sleep(admission.interval)
                admission.follow(self._parts.policy.load(), len(self._flights))
                for flight in self.flights()[admission.limit :]:
                    flight.straggle.cancel()

    async def _slot(
        self,
        slot: int,
        source: Source,
        send: MemoryObjectSendStream[ScoreRequest[Ticket]],
        hand_over: Callable[[Ticket, Reward], Awaitable[None]],
    ) -> None:
        async with send:
            while True:
                await self._parts.admission.permits(slot)
                item = await source.next()
                if item is None:
                    return
                trajectory = await self._act(item)
                ticket = Ticket(item, trajectory)
                if not rule_for(trajectory.stop_reason).scored:
                    await hand_over(ticket, unscored(trajectory))
                    continue
                self._parts.board.move(item.rollout_id, "scoring")
                score = partial(self._parts.domain.score, item.task, trajectory)
                await send.send(ScoreRequest(score=score, ticket=ticket))

    async def _act(self, item: WorkItem) -> Trajectory:
        parts, name = self._parts, item.rollout_id
        on_stage = partial(parts.board.move, name)
        on_stage("sampling")
        flight = self._flights[name] = Flight(item=item, straggle=Straggle())
        try:
            return await rollout(
                task_id=item.task.id,
                rollout_id=name,
                seed=item.seed,
                agent=parts.agents(),
                environment=parts.domain.environment(item.task, on_stage),
                policy=parts.policy,
                limits=self._limits,
                on_stage=on_stage,
                earlier=item.earlier,
                straggle=flight.straggle,
            )
        finally:
            self._flown += flight.seconds
            del self._flights[name]


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
