"""The model's rollout slots and reward workers: one process each, as in `pipeline.py`.

slot     next group -> turns (sampler, driver, call in a sandbox) -> the scorers' queue -> again
worker   a finished rollout -> its own sandbox, the verdict -> its group -> again
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from .flow import Flow, SimulatedGroup
from .machines import Doing, Machines
from .meters import Level, Meters
from .parameters import ScaleParameters
from .sandboxes import Sandboxes

if TYPE_CHECKING:
    from simpy import Environment
    from simpy.events import Event

Finished = tuple[SimulatedGroup, bool, float, float]
"""Group, solved, tokens, and when it was handed to the scorers."""


class ScoringLine:
    """The bounded stream between slots and workers."""

    def __init__(self, env: Environment, limit: int) -> None:
        self._env, self._limit = env, limit
        self._held: deque[Finished] = deque()
        self._takers: deque[Event] = deque()
        self._givers: deque[tuple[Event, Finished]] = deque()

    def put(self, item: Finished) -> Event:
        """Happens when it is in."""
        event = self._env.event()
        if self._takers:
            self._takers.popleft().succeed(item)
        elif len(self._held) >= self._limit:
            self._givers.append((event, item))
            return event
        else:
            self._held.append(item)
        return event.succeed()

    def get(self) -> Event:
        """An event whose value is the next."""
        event = self._env.event()
        if self._held:
            event.succeed(self._held.popleft())
            if self._givers:
                giver, item = self._givers.popleft()
                self._held.append(item)
                giver.succeed()
        else:
            self._takers.append(event)
        return event


class Rollouts:
    """Slots, workers, and what they share."""

    def __init__(
        self,
        env: Environment,
        parameters: ScaleParameters,
        machines: Machines,
        flow: Flow,
        meters: Meters,
    ) -> None:
        self._env, self._machines, self._flow, self._meters = env, machines, flow, meters
        work, self._own = parameters.workload, parameters.orchestrator
        self._work, self._seed = work, parameters.seed
        self._tokens = work.turn_tokens.drawer()
        self._checkout, self._call = Doing(work.checkout), Doing(work.call)
        self._score, self._recycle = Doing(work.score), Doing(parameters.hosts.recycle)
        self._line = ScoringLine(env, parameters.scoring.queue)
        self._recycles = random.Random(f"{parameters.seed} recycles")
        self._scores = random.Random(f"{parameters.seed} scores")
        hosts, workers = parameters.hosts.count, parameters.scoring.workers
        sandboxes = parameters.hosts.sandboxes or parameters.slots
        self.sandboxes = self._pool(hosts, sandboxes, "a sandbox")
        self.verdicts = self._pool(
            hosts, parameters.scoring.sandboxes or workers, "a verdict's sandbox"
        )
        self.flying = Level(env)
        """Slots with a rollout under way."""
        self.scoring = Level(env)
        """Workers with a rollout."""
        self.finished: Callable[[], None] = lambda: None
        """Called when a rollout is scored, or was given up."""

    def slot(self) -> Generator[Event, Any, None]:
        """One rollout after the other, without an end."""
        while True:
            group = yield from self._flow.next()
            began = self._env.now
            self.flying.add(1)
            stream = random.Random(hash((self._seed, group.number, group.out, group.todo)))
            solved, tokens = yield from self._rollout(group, stream)
            self.flying.add(-1)
            self._meters.wait("rollout", began)
            if group.dead:
                yield from self._flow.deliver(group, solved, tokens)
                self.finished()
                continue
            since = self._env.now
            yield self._line.put((group, solved, tokens, since))
            self._meters.wait("room for scoring", since)

    def worker(self) -> Generator[Event, Any, None]:
        """One verdict after the other, without an end."""
        while True:
            group, solved, tokens, since = yield self._line.get()
            self._meters.wait("a reward worker", since)
            self.scoring.add(1)
            host = yield self.verdicts.lease()
            yield from self._machines.do(self._score, host, self._scores)
            self.verdicts.release(host)
            yield from self._flow.deliver(group, solved, tokens)
            self.scoring.add(-1)
            self.finished()

    def _rollout(
        self, group: SimulatedGroup, stream: random.Random
    ) -> Generator[Event, Any, tuple[bool, float]]:
        """The turns of one rollout: whether it is solved, and its tokens with all context."""
        work, machines = self._work, self._machines
        yield machines.drive(self._own.rollout_seconds)
        host = -1
        if work.lease == "opening":
            host = yield from self._leased(stream)
        context = 0.0 if group.context_read else work.opening_tokens
        group.context_read = True
        total, solved = work.opening_tokens, False
        for _ in range(work.turns):
            tokens = self._tokens(stream)
            waited = yield from machines.sample(tokens, context, stream)
            self._meters.waited("the sampler", waited)
            self._meters.counts["tokens"] += round(tokens)
            yield machines.drive(self._own.turn_seconds)
            total += tokens + work.observation_tokens
            context = work.observation_tokens
            if group.dead:
                break
            if host < 0:
                host = yield from self._leased(stream)
            yield from machines.do(self._call, host, stream)
            solved = stream.random() < work.solved
            if solved:
                break
        if host >= 0:
            self.sandboxes.release(host)
        return solved, total

    def _leased(self, stream: random.Random) -> Generator[Event, Any, int]:
        host: int = yield self.sandboxes.lease()
        yield from self._machines.do(self._checkout, host, stream)
        return host

    def _pool(self, hosts: int, slots: int, name: str) -> Sandboxes:
        return Sandboxes(
            self._env, hosts, slots, recycle=self._recycled, meters=self._meters, name=name
        )

    def _recycled(self, host: int) -> Event:
        return self._env.process(self._machines.do(self._recycle, host, self._recycles))
