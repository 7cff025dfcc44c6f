"""Work that goes on side by side on one server, each slowed by the others.

Processor sharing in virtual time (as fair queueing has it): a clock runs at the speed that a job
has at the moment, a job ends when that clock has gone on by its work. Joining and leaving change
the speed and nothing else, so that an event costs O(log n), whatever the number of jobs.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simpy import Environment
    from simpy.events import Event


SLACK = 1e-8
"""Seconds by which a job may end early: floating point has no more at the end of a long run."""


class Shared:
    """One server: a host's cores, an accelerator's batch, a process."""

    def __init__(
        self,
        env: Environment,
        speed: Callable[[float], float],
        *,
        capacity: float,
        limit: float = math.inf,
    ) -> None:
        """`speed(load)` is the work a second of each job where the jobs' weights add up to `load`;
        `capacity` the most of load times speed; more than `limit` jobs wait in line."""
        self._env = env
        self._speed = speed
        self._capacity = capacity
        self._limit = limit
        self._clock = self._now = 0.0
        self._load = 0.0
        self._rate = 0.0
        self._ends: list[tuple[float, int, float, Event]] = []
        self._line: deque[tuple[float, float, Event, Event | None]] = deque()
        self._serial = 0
        self._frozen = 0.0
        self._timer = math.inf
        self._done = self._paused = 0.0

    @property
    def jobs(self) -> int:
        """Jobs in it and in line."""
        return len(self._ends) + len(self._line)

    def work(self, amount: float, weight: float = 1.0, begun: Event | None = None) -> Event:
        """An event for the end of a job of `amount`; `begun` happens when it leaves the line."""
        done = self._env.event()
        if amount <= 0 and begun is None:
            return done.succeed()
        self._advance()
        if len(self._ends) >= self._limit:
            self._line.append((amount, weight, done, begun))
        else:
            self._join(amount, weight, done, begun)
            self._arm()
        return done

    def pause(self, seconds: float) -> None:
        """All jobs stand still for so long, after the pauses that were asked for before."""
        self._advance()
        self._paused += seconds
        self._frozen = max(self._frozen, self._env.now) + seconds

    def used(self) -> float:
        """Seconds at full capacity that the work so far amounts to, pauses included."""
        self._advance()
        ahead = max(self._frozen - self._env.now, 0.0)
        return self._done / self._capacity + self._paused - ahead

    def _join(self, amount: float, weight: float, done: Event, begun: Event | None) -> None:
        self._serial += 1
        heapq.heappush(self._ends, (self._clock + amount, self._serial, weight, done))
        self._load += weight
        self._rate = self._speed(self._load)
        if begun is not None:
            begun.succeed()

    def _advance(self) -> None:
        """Bring the clock up to now."""
        now = self._env.now
        if self._ends:
            ran = max(now - max(self._now, self._frozen), 0.0)
            self._clock += ran * self._rate
            self._done += ran * self._rate * self._load
        self._now = now

    def _arm(self) -> None:
        """See to it that somebody looks when the first job ends; a timer that comes early asks
        again, so that one that is set already is left alone."""
        if not self._ends:
            return
        now = self._env.now
        left = max(self._ends[0][0] - self._clock, 0.0) / self._rate
        at = max(self._frozen, now) + left
        if at < self._timer - 1e-12:
            self._timer = at
            timer = self._env.timeout(at - now, value=at)
            assert timer.callbacks is not None
            timer.callbacks.append(self._due)

    def _due(self, timer: Any) -> None:
        if timer.value != self._timer:
            return  # another was set for an earlier time
        self._timer = math.inf
        self._advance()
        reached = self._clock + SLACK * self._rate + 1e-12 * self._clock
        while self._ends and self._ends[0][0] <= reached:
            _, _, weight, done = heapq.heappop(self._ends)
            self._load -= weight
            done.succeed()
            if self._line:
                self._join(*self._line.popleft())
        if not self._ends:
            self._load = 0.0
        self._rate = self._speed(self._load) if self._ends else 0.0
        self._arm()
