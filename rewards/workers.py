"""Reward workers: they take finished rollouts from a bounded stream, and hand on rewards.

    rollouts --(bounded)--> worker x N --> deliver(item, reward)

A worker waits for nothing but its own sandbox. Identical patches of a task are judged once: the
first worker judges, the others wait for its verdict and share it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from patchgym.datasets.task import Task

from .base import Reward, Verdict
from .composite import RewardConfig, compose

Judge = Callable[[Task, bytes], Awaitable[Verdict]]
Ticket = TypeVar("Ticket")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest(Generic[Ticket]):
    """One finished rollout to score."""

    score: Callable[[], Awaitable[Reward]]
    """Computes the reward."""
    ticket: Ticket
    """Handed back with the reward, untouched."""


@dataclass(slots=True)
class _Pending:
    done: anyio.Event = field(default_factory=anyio.Event)
    verdict: Verdict | None = None


class Scorer:
    """Judges each distinct (task, diff) once and composes rewards.

    Unknown verdicts are not remembered, so that a later identical patch gets a new chance.
    """

    def __init__(self, judge: Judge, config: RewardConfig, *, deadline: float) -> None:
        self._judge = judge
        self._config = config
        self._deadline = deadline
        self._verdicts: dict[tuple[str, bytes], _Pending] = {}
        self.judged = 0
        self.shared = 0

    async def score(self, task: Task, diff: bytes) -> Reward:
        """The reward of `diff` on `task`; takes at most the deadline (seconds)."""
        started = time.monotonic()
        key = (task.id, hashlib.sha256(diff).digest())
        pending = self._verdicts.get(key)
        shared = pending is not None
        if pending is None:
            pending = self._verdicts[key] = _Pending()
            await self._lead(key, pending, task, diff)
        else:
            await pending.done.wait()
        verdict = pending.verdict
        if verdict is None:
            raise RuntimeError(f"{task.id}: the worker that judged this patch was cancelled")
        self.shared += shared
        seconds = time.monotonic() - started
        return compose(task, diff, verdict, self._config, seconds=seconds, shared=shared)

    async def _lead(
        self, key: tuple[str, bytes], pending: _Pending, task: Task, diff: bytes
    ) -> None:
        try:
            with anyio.move_on_after(self._deadline) as scope:
                pending.verdict = await self._judge(task, diff)
            if scope.cancelled_caught:
                pending.verdict = Verdict(
                    status="unknown",
                    evidence="infra",
                    detail=f"no verdict within {self._deadline:.0f} s",
                )
            self.judged += 1
        finally:
            if pending.verdict is None or pending.verdict.status == "unknown":
                self._verdicts.pop(key, None)
            pending.done.set()


async def run_workers(
    inbox: MemoryObjectReceiveStream[ScoreRequest[Ticket]],
    deliver: Callable[[Ticket, Reward], Awaitable[None]],
    *,
    workers: int,
) -> None:
    """Score what arrives until the stream's senders are closed."""

    async def work(mine: MemoryObjectReceiveStream[ScoreRequest[Ticket]]) -> None:
        async with mine:
            async for request in mine:
                await deliver(request.ticket, await request.score())

    async with inbox, anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work, inbox.clone())
