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
from opentelemetry.trace import Span

from patchgym.agent import (
    AgentFactory,
    Policy,
    RolloutLimits,
    Straggle,
    Trajectory,
    rollout,
    rollout_span,
    rule_for,
)
from patchgym.rewards import Reward, ScoreRequest, run_workers

from .admission import Admission
from .config import ScoringSection
from .domain import Domain, OnStage
from .group import WorkItem
from .idle import RolloutStages, StageBoard
from .telemetry import signals

SCORING_LIMIT = 4
"""Times `scoring.deadline` that a whole reward may take: verdict, linters, the rest."""

Deliver = Callable[[WorkItem, Trajectory, Reward], Awaitable[None]]


class Source(Protocol):
    """Where work comes from."""

    async def next(self) -> WorkItem | None:
        """The next rollout; None when there will be none."""
        ...


class Rollouts(Protocol):
    """Where rollouts are acted."""

    async def act(
        self,
        item: WorkItem,
        *,
        limits: RolloutLimits,
        on_stage: OnStage,
        straggle: Straggle,
        span: Span,
    ) -> Trajectory:
        """One rollout, to its end; see `agent.rollout` for what it may meet."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineParts:
    """What the pipeline works with."""

    policy: Policy
    agents: AgentFactory
    domain: Domain
    board: StageBoard
    admission: Admission
    model: str = ""
    """The policy's name in spans."""
    rollouts: Rollouts | None = None
    """None acts them in this process."""


@dataclass(frozen=True, slots=True)
class LocalRollouts:
    """Rollouts in this process."""

    parts: PipelineParts

    async def act(
        self,
        item: WorkItem,
        *,
        limits: RolloutLimits,
        on_stage: OnStage,
        straggle: Straggle,
        span: Span,
    ) -> Trajectory:
        """See `Rollouts`."""
        parts = self.parts
        return await rollout(
            task_id=item.task.id,
            rollout_id=item.rollout_id,
            seed=item.seed,
            agent=parts.agents(),
            environment=parts.domain.environment(item.task, on_stage),
            policy=parts.policy,
            limits=limits,
            on_stage=on_stage,
            earlier=item.earlier,
            straggle=straggle,
            model=parts.model,
            span=span,
        )


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
        self._rollouts = parts.rollouts or LocalRollouts(parts)
        self._limits = limits
        self._scoring = scoring
        self._flights: dict[str, Flight] = {}
        self._flown = 0.0
        self._aboard: set[str] = set()
        """Rollouts of this pipeline on the board."""
        self._for_scoring = 0
        """Rollouts with a scorer or in line for one."""

    async def run(self, source: Source, deliver: Deliver, *, slots: int) -> None:
        """Run until the source has no more work and everything is delivered."""

        async def hand_over(ticket: Ticket, reward: Reward) -> None:
            trajectory = ticket.trajectory
            if reward.total is None and rule_for(trajectory.stop_reason).scored:
                trajectory = dataclasses.replace(
                    trajectory, stop_reason="scoring_failed", error=reward.verdict.detail
                )
            board, name = self._parts.board, trajectory.rollout_id
            board.move(name, "recording")
            signals.rollout_delivered(trajectory.stop_reason)
            await deliver(ticket.item, trajectory, reward)
            self._for_scoring -= ticket.scored
            self._aboard.discard(name)
            board.leave(name)

        try:
            await self._run(source, hand_over, slots=slots)
        finally:
            for name in self._aboard:
                self._parts.board.forget(name)

    async def _run(
        self, source: Source, hand_over: Callable[[Ticket, Reward], Awaitable[None]], *, slots: int
    ) -> None:
        send, receive = anyio.create_memory_object_stream[ScoreRequest[Ticket]](self._scoring.queue)
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

    @property
    def aboard(self) -> frozenset[str]:
        """Rollouts that are not delivered yet."""
        return frozenset(self._aboard)

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
        board, place = self._parts.board, (id(self), slot)
        async with send:
            while True:
                await self._permitted(slot)
                item = await source.next()
                if item is None:
                    board.gone(place)
                    return
                self._aboard.add(item.rollout_id)
                board.begin(item.rollout_id, item.task.id, place)
                span = rollout_span(item.task.id, item.rollout_id, slot=slot, group=item.group_id)
                trajectory = await self._act(item, span)
                if rule_for(trajectory.stop_reason).scored:
                    await send.send(self._request(item, trajectory, span))
                else:
                    await hand_over(Ticket(item, trajectory), unscored(trajectory))
                board.free(place, item.rollout_id)

    async def _permitted(self, slot: int) -> None:
        """Wait until the admission's limit lets this slot work."""
        admission, board = self._parts.admission, self._parts.board
        if slot >= admission.limit:
            since = board.clock()
            await admission.permits(slot)
            board.allows("admission", since)

    def _request(self, item: WorkItem, trajectory: Trajectory, span: Span) -> ScoreRequest[Ticket]:
        """It is for the scorers from here on."""
        in_line = self._for_scoring >= self._scoring.workers
        self._for_scoring += 1
        self._parts.board.move(item.rollout_id, "scoring wait")

        async def score() -> Reward:
            self._parts.board.move(item.rollout_id, "scoring", in_line=in_line)
            return await self._parts.domain.score(item.task, trajectory)

        ticket = Ticket(item, trajectory, scored=True)
        limit = SCORING_LIMIT * self._scoring.deadline
        return ScoreRequest(
            score=score, ticket=ticket, deadline=limit, rollout_id=item.rollout_id, parent=span
        )

    async def _act(self, item: WorkItem, span: Span) -> Trajectory:
        name = item.rollout_id
        on_stage = RolloutStages(self._parts.board, name)
        flight = self._flights[name] = Flight(item=item, straggle=Straggle())
        try:
            return await self._rollouts.act(
                item,
                limits=self._limits,
                on_stage=on_stage,
                straggle=flight.straggle,
                span=span,
            )
        finally:
            self._flown += flight.seconds
            del self._flights[name]


@dataclass(frozen=True, slots=True)
class Ticket:
    item: WorkItem
    trajectory: Trajectory
    scored: bool = False
    """It went through a scorer."""


def unscored(trajectory: Trajectory) -> Reward:
    """The reward of a rollout that is not scored at all: unknown."""
    return Reward.unknown(trajectory.error or trajectory.stop_reason)
