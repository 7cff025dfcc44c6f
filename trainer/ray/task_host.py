"""A task host: an actor with a domain of its own, which acts rollouts beside their sandboxes, or
works rewards out.

    setup(...)      open the domain, with its pools
    validate(ids)   gold passes, empty fails, in this host's sandboxes
    equip(...)      the tokenizer, from which agents are made
    act(order)      talk: stages and turns to sample go out, turns come in; its result a Trajectory
    score(...)      a Reward
    expect(ids)     these tasks come next
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from patchgym.agent import AgentFactory, Straggle, Trajectory, rollout
from patchgym.agent.chat import ChatTokenizer
from patchgym.rewards import Reward
from patchgym.sandbox.ray import Conversations, Handler, Held, Talk
from patchgym.trainer.config import REPOSITORIES, RunConfig, config_from_mapping
from patchgym.trainer.domain import Domain, load_attribute

from .errors import carry_errors
from .host_policy import HostPolicy
from .orders import Order, Setup, Staged


@dataclass(slots=True, kw_only=True)
class Opened:
    """A host's domain."""

    config: RunConfig
    domain: Domain
    tasks: Mapping[str, Any]
    """By id."""
    agents: AgentFactory | None = None


class TaskService:
    """The service of a `TaskHost`."""

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._held: Held[Opened] = Held()

    def handlers(self) -> Mapping[str, Handler]:
        """See `Service`."""
        return {
            "setup": self.setup,
            "validate": self.validate,
            "equip": self.equip,
            "act": self.act,
            "score": self.score,
            "expect": self.expect,
        }

    async def aclose(self) -> None:
        """Close the domain: every container of it goes."""
        await self._held.aclose()

    async def setup(self, talk: Talk, setup: Setup) -> None:
        """Open the domain; nothing when the same one is open."""
        if self._held.value is not None and self._setup == setup:
            return
        await self._held.aclose()
        await self._held.open(_opened(setup))
        self._setup = setup

    async def validate(self, talk: Talk, ids: Sequence[str]) -> None:
        """Raises ConfigError for a task that is not worth running."""
        from patchgym.trainer.repositories import RepositoryDomain, validate

        opened = self._opened()
        if isinstance(opened.domain, RepositoryDomain):
            tasks = [opened.tasks[each] for each in ids]
            await validate(opened.domain, tasks, lambda *counts: talk.send(counts))

    async def equip(self, talk: Talk, tokenizer: ChatTokenizer) -> None:
        """From now on agents can be made."""
        from patchgym.trainer.agents import make_agents

        opened = self._opened()
        opened.agents = make_agents(opened.config, tokenizer)

    async def act(self, talk: Talk, order: Order) -> Trajectory:
        """One rollout, to its end."""
        opened = self._opened()
        assert opened.agents is not None, "act before equip"
        straggle, policy = Straggle(), HostPolicy(talk)
        trajectory: Trajectory | None = None

        def on_stage(stage: str, /, *, sandbox: str = "") -> None:
            talk.send(Staged(stage, sandbox), urgent=False)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(policy.listen, straggle)
            trajectory = await rollout(
                task_id=order.task_id,
                rollout_id=order.rollout_id,
                seed=order.seed,
                agent=opened.agents(),
                environment=opened.domain.environment(opened.tasks[order.task_id], on_stage),
                policy=policy,
                limits=order.limits,
                on_stage=on_stage,
                earlier=order.earlier,
                straggle=straggle,
                model=order.model,
            )
            tasks.cancel_scope.cancel()
        assert trajectory is not None
        return trajectory

    async def score(self, talk: Talk, task_id: str, trajectory: Trajectory) -> Reward:
        """See `Domain.score`."""
        opened = self._opened()
        return await opened.domain.score(opened.tasks[task_id], trajectory)

    async def expect(self, talk: Talk, ids: Sequence[str]) -> None:
        """See `Domain.expect`."""
        opened = self._opened()
        opened.domain.expect([opened.tasks[each] for each in ids])

    def _opened(self) -> Opened:
        assert self._held.value is not None, "not set up"
        return self._held.value


class TaskHost(Conversations):
    """The actor."""

    def __init__(self, silence: float) -> None:
        carry_errors()
        super().__init__(TaskService(), silence=silence)


@asynccontextmanager
async def _opened(setup: Setup) -> AsyncIterator[Opened]:
    config = config_from_mapping(tomllib.loads(setup.config), source="the driver's configuration")
    async with AsyncExitStack() as stack:
        if config.environment.use in REPOSITORIES:
            domain: Domain = await _repositories(config, setup, stack)
        else:
            made: Any = load_attribute(config.environment.use, "environment.use")(
                config.environment.settings
            )
            entered = hasattr(made, "__aenter__")
            domain = await stack.enter_async_context(made) if entered else made
        tasks = {task.id: task for task in (*domain.train, *domain.heldout)}
        yield Opened(config=config, domain=domain, tasks=tasks)


async def _repositories(config: RunConfig, setup: Setup, stack: AsyncExitStack) -> Domain:
    from patchgym.trainer.repositories import kind_of, open_task_domain

    rolls_out = setup.role == "rollouts"
    slots = setup.slots if rolls_out else 1
    return await open_task_domain(
        setup.train,
        setup.heldout,
        kind=kind_of(config),
        sandbox=dataclasses.replace(config.sandbox, slots=slots),
        scoring=dataclasses.replace(config.scoring, slots=setup.slots),
        reward=config.reward,
        stack=stack,
        scores=not rolls_out,
    )
