"""Reward workers: they take finished rollouts from a bounded stream, and hand on rewards.

    rollouts --(bounded)--> worker x N --> deliver(ticket, reward)

A worker waits for nothing but its own request, which has a deadline. A request whose scoring raises
is scored once more; if that raises too, its reward is unknown and says why. Only what `deliver`
raises ends the workers.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from opentelemetry.trace import Span

from . import telemetry
from .base import Reward
from .makers import Judge

__all__ = ["Judge", "ScoreRequest", "run_workers"]

ATTEMPTS = 2
Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest(Generic[Ticket]):
    """One finished rollout to score."""

    score: Callable[[], Awaitable[Reward]]
    """Computes the reward; called again if it raises."""
    ticket: Ticket
    """Handed back with the reward, untouched."""
    deadline: float | None = None
    """Seconds for all of it, from when a worker takes it; past it the reward is unknown."""
    rollout_id: str = ""
    """For its span."""
    parent: Span | None = None
    """The span of the rollout, which may have ended; the scoring is told as a part of it."""
    asked: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""


async def run_workers(
    inbox: MemoryObjectReceiveStream[ScoreRequest[Ticket]],
    deliver: Callable[[Ticket, Reward], Awaitable[None]],
    *,
    workers: int,
) -> None:
    """Score what arrives until the stream's senders are closed; every ticket is delivered."""

    async def work(mine: MemoryObjectReceiveStream[ScoreRequest[Ticket]]) -> None:
        async with mine:
            async for request in mine:
                await deliver(request.ticket, await _told(request))

    async with inbox, anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work, inbox.clone())


async def _told(request: ScoreRequest[Ticket]) -> Reward:
    waited = time.monotonic() - request.asked
    with telemetry.scoring(request.parent, request.rollout_id, waited) as told:
        reward = await _scored(request)
        told.ended(reward)
    return reward


async def _scored(request: ScoreRequest[Ticket]) -> Reward:
    started = time.monotonic()
    problem = ""
    with anyio.move_on_after(request.deadline):
        for _ in range(ATTEMPTS):
            try:
                return await request.score()
            except Exception as error:  # one rollout's accident must not end the run
                problem = f"scoring failed {ATTEMPTS} times: {type(error).__name__}: {error}"
        return Reward.unknown(problem, seconds=time.monotonic() - started)
    late = f"not scored within {request.deadline:g} s"
    return Reward.unknown(late, seconds=time.monotonic() - started)
