"""The domain and the rollouts of a run whose sandboxes are a Ray cluster's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.trace import Span

from patchgym.agent import Environment, Policy, RolloutLimits, Straggle, Trajectory
from patchgym.agent.chat import ChatTokenizer
from patchgym.agent.telemetry import acting
from patchgym.rewards import Reward
from patchgym.sandbox.ray import RESOURCE, connected
from patchgym.trainer.config import REPOSITORIES, PolicySection, RunConfig, config_to_toml
from patchgym.trainer.domain import Domain, DomainFactory, OnStage, load_attribute
from patchgym.trainer.group import WorkItem
from patchgym.trainer.progress import Progress

from .errors import carry_errors
from .fleet import Fleet
from .orders import Order, Role, Setup
from .section import RaySection

REWARD_RESOURCE = "reward_host"
"""Custom resource of nodes that are meant for rewards."""


@dataclass(slots=True, kw_only=True)
class RayDomain:
    """Implements `Domain`; its environments are on the hosts, and `RayRollouts` acts in them."""

    train: Sequence[Any]
    heldout: Sequence[Any]
    rollouts: Fleet
    rewards: Fleet
    image: Callable[[Any], str]
    """Of a task; what hosts are chosen by."""

    def environment(self, task: Any, on_stage: OnStage) -> Environment:
        """Never asked for: see `RayRollouts`."""
        raise NotImplementedError("rollouts of a Ray run are acted on its hosts")

    def image_of(self, task: Any) -> str:
        """See `Imaged`."""
        return self.image(task)

    async def score(self, task: Any, trajectory: Trajectory) -> Reward:
        """On a reward host."""
        return await self.rewards.score(task.id, self.image(task), trajectory)

    def expect(self, tasks: Sequence[Any]) -> None:
        """Hosts make these tasks' images ready."""
        self.rollouts.expect(tasks, self.image)


@dataclass(slots=True, kw_only=True)
class RayRollouts:
    """Implements `pipeline.Rollouts`."""

    domain: RayDomain
    policy: Policy
    model: str = ""

    async def act(
        self,
        item: WorkItem,
        *,
        limits: RolloutLimits,
        on_stage: OnStage,
        straggle: Straggle,
        span: Span,
    ) -> Trajectory:
        """On the host that the task's image is warm on, or the least loaded one."""
        order = Order(
            task_id=item.task.id,
            rollout_id=item.rollout_id,
            seed=item.seed,
            limits=limits,
            earlier=item.earlier,
            model=self.model,
        )
        with acting(span, item.task.id, item.rollout_id) as told:
            trajectory = await self.domain.rollouts.act(
                order,
                image=self.domain.image(item.task),
                policy=self.policy,
                on_stage=on_stage,
                straggle=straggle,
            )
            told.ended(trajectory)
        return trajectory

    async def equip(self, tokenizer: ChatTokenizer) -> None:
        """Before the first rollout."""
        await self.domain.rollouts.equip(tokenizer)


async def open_ray(config: RunConfig, progress: Progress, stack: AsyncExitStack) -> RayDomain:
    """Connect, open a domain on every host, and validate its tasks there; all of it closes with
    `stack`. Raises ClusterError, ConfigError, and what opening a domain raises on every host."""
    train, heldout, image = _tasks(config)
    opened = await open_ray_tasks(
        config, train, heldout, image, enter=progress.enter, tell=progress.listener, stack=stack
    )
    if config.environment.use in REPOSITORIES:
        progress.enter("validating tasks: the gold patch passes, the empty patch fails")
        await opened.rollouts.validate((*train, *heldout), progress.advance)
    return opened


async def open_ray_tasks(
    config: RunConfig,
    train: Sequence[Any],
    heldout: Sequence[Any],
    image: Callable[[Any], str],
    *,
    enter: Callable[[str], None],
    tell: Callable[[str], None],
    stack: AsyncExitStack,
) -> RayDomain:
    """Connect, and open a domain over these tasks on every host; nothing is validated. `enter`
    hears what is under way, `tell` of hosts that come and go. Raises as `open_ray` does."""
    carry_errors()
    section = config.ray
    enter(f"joining the Ray cluster at {section.address}")
    await stack.enter_async_context(connected(section.address))
    made = _Maker(config, section, train, heldout, tell)
    enter("starting a host on every node, and filling their pools")
    rollouts = made.fleet("rollouts", (RESOURCE,), limit=section.hosts, slots=config.sandbox.slots)
    await stack.enter_async_context(rollouts.kept())
    scoring = config.scoring
    rewards = made.fleet(
        "rewards",
        (REWARD_RESOURCE, RESOURCE),
        limit=section.reward_hosts,
        slots=scoring.slots or scoring.workers,
    )
    await stack.enter_async_context(rewards.kept())
    return RayDomain(train=train, heldout=heldout, rollouts=rollouts, rewards=rewards, image=image)


@dataclass(frozen=True, slots=True)
class _Maker:
    config: RunConfig
    section: RaySection
    train: Sequence[Any]
    heldout: Sequence[Any]
    tell: Callable[[str], None]

    def fleet(self, role: Role, resource: tuple[str, ...], *, limit: int, slots: int) -> Fleet:
        ships = self.config.environment.use in REPOSITORIES
        here = _from_anywhere(self.config)
        setup = Setup(
            role=role,
            config=config_to_toml(here),
            slots=0,
            train=tuple(self.train) if ships else (),
            heldout=tuple(self.heldout) if ships else (),
        )
        # What scales with the work is where rollouts are: rewards follow on the same nodes.
        section = (
            self.section if role == "rollouts" else dataclasses.replace(self.section, max_hosts=0)
        )
        return Fleet(
            section,
            lambda share: dataclasses.replace(setup, slots=share),
            resource=resource,
            limit=limit,
            slots=slots,
            tell=self.tell,
        )


def _from_anywhere(config: RunConfig) -> RunConfig:
    """The configuration of a host: files of code by their whole paths, no Ray, and no policy."""
    environment, agent = config.environment, config.agent
    return dataclasses.replace(
        config,
        ray=RaySection(),
        policy=PolicySection(),
        environment=dataclasses.replace(environment, use=_absolute(environment.use)),
        agent=dataclasses.replace(agent, scaffold=_absolute(agent.scaffold)),
    )


def _absolute(name: str) -> str:
    file, colon, attribute = name.rpartition(":")
    return f"{Path(file).absolute()}:{attribute}" if colon and file.endswith(".py") else name


def _tasks(config: RunConfig) -> tuple[Sequence[Any], Sequence[Any], Callable[[Any], str]]:
    """What is trained on, what is held out, and the image of each."""
    if config.environment.use not in REPOSITORIES:
        make: DomainFactory = load_attribute(config.environment.use, "environment.use")
        domain: Domain = make(config.environment.settings)
        return domain.train, domain.heldout, lambda task: ""
    from patchgym.trainer.repositories import image_name, load_run_tasks

    train, heldout = load_run_tasks(config)
    return train, heldout, lambda task: image_name(task, config.sandbox.image)
