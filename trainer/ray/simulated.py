"""The simulated world with its environments on the hosts of a Ray cluster.

For what a cluster costs and how it takes the loss of nodes, without a container or an accelerator.
Rollouts, hosts, network, groups and ledger are real; see `patchgym.trainer.simulation` for what is
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import anyio.to_thread

from patchgym.agent import Agent
from patchgym.agent.chat import ChatTokenizer
from patchgym.agent.scripted import CharacterTokenizer
from patchgym.trainer.config import RunConfig
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.progress import Progress
from patchgym.trainer.simulation import (
    Latency,
    SimulatedAgent,
    SimulatedDomain,
    SimulatedRun,
    World,
    open_simulated,
    simulate,
)

from .domain import RayRollouts, open_ray

DOMAIN = "patchgym.trainer.ray.simulated:simulated_domain"
AGENT = "patchgym.trainer.ray.simulated:simulated_agent"


def world_of(settings: Mapping[str, object]) -> World:
    """A world from `environment.settings`: its fields by name, latencies as they are written.

    Raises ConfigError for what a world does not have.
    """
    known = {each.name: each.type for each in fields(World)}
    wrong = sorted(settings.keys() - known.keys() - {"tasks"})
    if wrong:
        raise ConfigError(f"environment.settings.{wrong[0]}: a simulated world has no such thing")
    values: dict[str, Any] = {
        name: Latency(spec=str(value)) if known[name] == "Latency" else value
        for name, value in settings.items()
        if name != "tasks"
    }
    return World(**values)


def simulated_domain(settings: Mapping[str, object]) -> SimulatedDomain:
    """For `environment.use`."""
    tasks = settings.get("tasks", 1000)
    return SimulatedDomain(world_of(settings), tasks=tasks if isinstance(tasks, int) else 1000)


def simulated_agent(tokenizer: ChatTokenizer) -> Agent:
    """For `agent.scaffold`."""
    return SimulatedAgent()


async def simulate_on_ray(config: RunConfig, folder: Path) -> SimulatedRun:
    """Train in the world of `environment.settings` on the cluster at `ray.address`."""
    world = world_of(config.environment.settings)
    async with AsyncExitStack() as stack:
        domain = await open_ray(config, Progress(), stack)
        resources = await anyio.to_thread.run_sync(open_simulated, config, world)
        rollouts = RayRollouts(domain=domain, policy=resources.policy)
        await rollouts.equip(CharacterTokenizer())
        resources.domain, resources.rollouts = domain, rollouts
        return await simulate(config, world, folder, resources)
