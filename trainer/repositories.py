"""The domain of repositories: tasks with tests, sandboxes from a pool, verdicts as rewards."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio

from patchgym.agent import Environment, RepairConfig, RepairEnvironment, Trajectory
from patchgym.agent.repository import RepositoryConfig, RepositoryEnvironment, lease_repository
from patchgym.datasets.cache import cache_dir, repositories_dir
from patchgym.datasets.task import Task
from patchgym.datasets.trial import TrialConfig
from patchgym.rewards import Conduct, Reward, RewardConfig, Scorer
from patchgym.sandbox import PatchgymError, Pool, Sandbox, SandboxSnapshot

from .config import RunConfig, SandboxSection, ScoringSection
from .domain import OnStage
from .errors import ConfigError
from .preflight import ValidationCache, preflight
from .progress import Progress
from .scoring import open_scorer, tests_timeout
from .task_pool import open_task_pool
from .task_sets import check_disjoint, check_images, load_task_set

if TYPE_CHECKING:
    from patchgym.datasets.images import TaskImages

EnvironmentKind = Literal["repair", "repository"]


class Warmer:
    """Makes the images of tasks that are expected next, one at a time, the soonest first."""

    def __init__(self, images: TaskImages, pool: Pool) -> None:
        self._images, self._pool = images, pool
        self._next: list[Task] = []
        self._changed = anyio.Event()

    def expect(self, tasks: Sequence[Task]) -> None:
        """Forget what was expected before; these come next."""
        self._next = list(tasks)
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled. A failure is left to the lease, which tells it to its rollout."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            ready: list[str | SandboxSnapshot] = []
            while self._next:
                task = self._next.pop(0)
                with contextlib.suppress(PatchgymError):
                    image = await self._images.prepare(task)
                    if image is not None:
                        ready.append(image.snapshot or image.tag)
            self._pool.expect(ready)


@dataclass(slots=True, kw_only=True)
class RepositoryDomain:
    """Implements `Domain` over one sandbox pool."""

    pool: Pool
    image: str
    """For tasks that name none."""
    train: Sequence[Task]
    heldout: Sequence[Task]
    scorer: Scorer | None
    """Has sandboxes of its own; None where rewards are worked out elsewhere."""
    kind: EnvironmentKind = "repair"
    sandbox: SandboxSection = field(default_factory=SandboxSection)
    images: TaskImages | None = None
    """Makes the images of tasks that have an environment; None when none has."""
    repositories: Path = field(default_factory=repositories_dir)
    """Folder of the materialized bundled repositories."""
    warmer: Warmer | None = None
    """Makes images ahead; None where there is nothing to make."""

    def environment(self, task: Task, on_stage: OnStage) -> Environment:
        """A fresh environment, its sandbox leased from the pool when it is first needed."""
        lease = partial(self._lease, task, on_stage)
        if self.kind == "repository":
            config = RepositoryConfig(
                command_seconds=self.sandbox.command_timeout,
                tests_seconds=tests_timeout(task, self.sandbox),
                repositories=self.repositories,
            )
            return RepositoryEnvironment(task, lease, config)
        return RepairEnvironment(
            task,
            partial(self._bare, on_stage),
            RepairConfig(tests_timeout=self.sandbox.tests_timeout, repositories=self.repositories),
        )

    def image_of(self, task: Task) -> str:
        """The task's own, or what its environment is built on, or the run's."""
        return image_name(task, self.image)

    async def score(self, task: Task, trajectory: Trajectory) -> Reward:
        """By the components of the run's reward; verdicts are taken in fresh sandboxes."""
        assert self.scorer is not None, "rewards are worked out elsewhere"
        return await self.scorer.score(task, trajectory.outcome, Conduct.of(trajectory))

    def expect(self, tasks: Sequence[Task]) -> None:
        """Make the images of these tasks, in the background, and have sandboxes of them ready."""
        if self.warmer is not None:
            self.warmer.expect(tasks)

    @asynccontextmanager
    async def _bare(self, on_stage: OnStage) -> AsyncIterator[Sandbox]:
        """A sandbox with nothing in it."""
        on_stage("lease wait")
        async with self.pool.lease(timeout=self.sandbox.lease_timeout) as sandbox:
            on_stage("tests", sandbox=sandbox.name)
            yield sandbox

    @asynccontextmanager
    async def _lease(self, task: Task, on_stage: OnStage) -> AsyncIterator[Sandbox]:
        """A sandbox with the task's repository in it."""
        lease = lease_repository(
            task,
            self.pool,
            images=self.images,
            repositories=self.repositories,
            timeout=self.sandbox.lease_timeout,
            on_stage=on_stage,
        )
        async with lease() as sandbox:
            on_stage("", sandbox=sandbox.name)
            yield sandbox


def kind_of(config: RunConfig) -> EnvironmentKind:
    """Which of the two environments a run's tasks are acted in."""
    return "repository" if config.environment.use == "repository" else "repair"


def image_name(task: Task, usual: str) -> str:
    """The task's own image, or what its environment is built on, or the `usual` one."""
    base = task.environment.base if task.environment else ""
    return task.image or base or usual


def load_run_tasks(config: RunConfig) -> tuple[Sequence[Task], Sequence[Task]]:
    """What is trained on and what is held out; ConfigError for tasks that a run can't have."""
    train, heldout = load_task_set(config.tasks.train), load_task_set(config.tasks.heldout)
    check_disjoint(train, heldout)
    if kind_of(config) == "repair":
        check_repairable((*train, *heldout))
    return train, heldout


async def validate(
    domain: RepositoryDomain, tasks: Sequence[Task], progress: Callable[[int, int], None]
) -> None:
    """Gold passes and the empty patch fails, in the domain's sandboxes; see `preflight`."""
    await preflight(
        tasks,
        domain.pool,
        image_id=domain.image,
        cache=ValidationCache(cache_dir() / "validated.json"),
        jobs=domain.sandbox.slots,
        progress=progress,
        trials=TrialConfig(images=domain.images),
    )


async def open_repositories(
    config: RunConfig, progress: Progress, stack: AsyncExitStack
) -> RepositoryDomain:
    """Image, pool and validated tasks; the pool closes with `stack`."""
    train, heldout = load_run_tasks(config)
    progress.enter("preparing the sandbox image and filling the pool")
    domain = await open_task_domain(
        train,
        heldout,
        kind=kind_of(config),
        sandbox=config.sandbox,
        scoring=config.scoring,
        reward=config.reward,
        stack=stack,
        on_opening=progress.enter,
    )
    progress.enter("validating tasks: the gold patch passes, the empty patch fails")
    await validate(domain, (*train, *heldout), progress.advance)
    return domain


async def open_task_domain(
    train: Sequence[Task],
    heldout: Sequence[Task],
    *,
    kind: EnvironmentKind,
    sandbox: SandboxSection,
    scoring: ScoringSection,
    reward: RewardConfig,
    stack: AsyncExitStack,
    on_opening: Callable[[str], None] = lambda words: None,
    scores: bool = True,
) -> RepositoryDomain:
    """A domain over these tasks, its pools filled; it closes with `stack`. Nothing is validated.

    Without `scores` it has nothing to work rewards out with.
    """
    tasks = (*train, *heldout)
    opened = await stack.enter_async_context(
        open_task_pool(
            tasks, image=sandbox.image, size=sandbox.slots, memory_mib=sandbox.memory_mib
        )
    )
    if opened.images is None:
        check_images(tasks, opened.image)
    warmer = Warmer(opened.images, opened.pool) if opened.images else None
    if warmer is not None:
        group = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(group.cancel_scope.cancel)
        group.start_soon(warmer.run)
    scorer = None
    if scores:
        scorer = await open_scorer(
            reward, opened, sandbox=sandbox, scoring=scoring, stack=stack, on_opening=on_opening
        )
    return RepositoryDomain(
        pool=opened.pool,
        image=opened.image,
        images=opened.images,
        train=train,
        heldout=heldout,
        kind=kind,
        sandbox=sandbox,
        scorer=scorer,
        warmer=warmer,
    )


def check_repairable(tasks: Sequence[Task]) -> None:
    """Refuse tasks that are not about one function: they want another environment."""
    for task in tasks:
        if task.focus is None:
            raise ConfigError(
                f"{task.id} is not about one function (it has no focus): "
                "set environment.use to repository"
            )
