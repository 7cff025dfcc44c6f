"""The model's machines: hosts' cores, samplers' batches, and the processes that run rollouts."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from .duration import Draw
from .least import Least
from .parameters import Activity, ScaleParameters
from .shared import Shared

if TYPE_CHECKING:
    from simpy import Environment
    from simpy.events import Event


class Doing:
    """An activity, ready to be drawn from."""

    def __init__(self, activity: Activity) -> None:
        self.draw: Draw = activity.seconds.drawer()
        self.cores = activity.cores
        self.driver_seconds = activity.driver_seconds


class Machines:
    """Everything that is shared by its speed."""

    def __init__(self, env: Environment, parameters: ScaleParameters) -> None:
        self._env = env
        cores = parameters.hosts.cores
        self.hosts = [_processor(env, cores) for _ in range(parameters.hosts.count)]
        self.samplers = [_sampler(env, parameters) for _ in range(parameters.sampler.accelerators)]
        own = parameters.orchestrator
        self.driver = self.hosts[0] if own.on_host else _processor(env, own.processes)
        self._least = Least(len(self.samplers))
        self._latency = parameters.sampler.latency.drawer()
        self._prefill_rate = parameters.sampler.prefill_rate * parameters.sampler.speed

    def do(self, doing: Doing, host: int, stream: random.Random) -> Generator[Event, Any, None]:
        """An activity on a host."""
        yield self.hosts[host].work(doing.draw(stream), doing.cores)
        if doing.driver_seconds:
            yield self.driver.work(doing.driver_seconds)

    def drive(self, seconds: float) -> Event:
        """Work of the process that runs the rollout."""
        return self.driver.work(seconds)

    def sample(
        self, tokens: float, context: float, stream: random.Random
    ) -> Generator[Event, Any, float]:
        """A turn of `tokens` after `context` tokens are read in; seconds in the sampler's line."""
        waited = 0.0
        if self.samplers:
            number = self._least.first()
            assert number is not None
            sampler = self.samplers[number]
            asked = self._env.now
            begun = self._env.event()
            done = sampler.work(max(tokens, 1.0), begun=begun)
            self._least.set(number, sampler.jobs)
            yield begun
            waited = self._env.now - asked
            sampler.pause(context / self._prefill_rate)
            yield done
            self._least.set(number, sampler.jobs)
        latency = self._latency(stream)
        if latency:
            yield self._env.timeout(latency)
        return waited


def _processor(env: Environment, cores: float) -> Shared:
    """Cores that slow down all alike when more are wanted than there are."""
    return Shared(env, lambda load: min(1.0, cores / load), capacity=cores)


def _sampler(env: Environment, parameters: ScaleParameters) -> Shared:
    """A batch whose decoding step takes longer the more turns there are in it."""
    sampler = parameters.sampler
    speeds = [0.0, *(1.0 / sampler.step_seconds(n) for n in range(1, sampler.turns + 1))]
    return Shared(
        env,
        lambda turns: speeds[round(turns)],
        capacity=sampler.token_rate,
        limit=sampler.turns,
    )
