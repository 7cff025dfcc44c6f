"""The image that a task's tests run in: an official one, or one made here by its environment.

    task.image, here or in a registry ──► the same, with the one commit in place of its history
    else the environment ──► an image of environment and commit, or where nothing is installed into
                             the repository and any lease can hold it, of the environment alone

Every image is made once, whoever asks at the same time: `ImageStore` sees to it, across processes.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from patchgym.sandbox import ImageError, ImageRecipe, ImageStore, SandboxSnapshot, SandboxSpec
from patchgym.sandbox.images.base import BASES
from patchgym.sandbox.spec import HOME

from .cache import repositories_dir
from .environment import Environment
from .repository import materialize
from .task import Task

MEMORY_MIB = 2048
DISK_MIB = 1024
PIDS = 512
APT = (
    "export DEBIAN_FRONTEND=noninteractive && apt-get update -q -o Acquire::Retries=3 && "
    "apt-get install -q -y --no-install-recommends -o Acquire::Retries=3 {} && "
    "rm -rf /var/lib/apt/lists/*"
)
AGENTS_HOME = f"mkdir -p {HOME} && chown 1000:1000 {HOME}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImage:
    """An image for one task."""

    tag: str
    """What to lease with."""
    workdir: str
    """Where the repository is, or is to be put."""
    snapshot: SandboxSnapshot | None = None
    """With the commit in place: for `Pool.lease(snapshot=...)`. None: check it out in the lease."""

    @property
    def spec(self) -> SandboxSpec:
        """A sandbox in which real repositories' tests fit."""
        return SandboxSpec(
            image=self.tag,
            workdir=self.workdir,
            writable_root=self.snapshot is not None,
            memory_mib=MEMORY_MIB,
            disk_mib=DISK_MIB,
            pids=PIDS,
        )


class TaskImages:
    """Finds or makes the images of tasks, in one store."""

    def __init__(self, store: ImageStore, *, repositories: Path | None = None) -> None:
        """`repositories` is the folder for repositories of tasks with inline files."""
        self._store = store
        self._repositories = repositories
        self._absent: set[str] = set()

    async def image(self, task: Task) -> str | None:
        """The tag to lease with; None when the task leaves it to the pool. Raises as `prepare`."""
        prepared = await self.prepare(task)
        return prepared.tag if prepared else None

    async def prepare(self, task: Task) -> TaskImage | None:
        """The task's image, made or pulled when missing; None when the task leaves it to the pool.

        Ask again before each lease: it costs little, and tells that the image is in use. Raises
        ImageError, TaskError and CheckoutError, each with what to do.
        """
        environment = task.environment
        if task.image is not None and await self._has(task.image):
            if environment is None:
                return TaskImage(tag=task.image, workdir=SandboxSpec(image=task.image).workdir)
            return await self._baked(task, environment, official_recipe(task.image, environment))
        if environment is None and task.image is None:
            return None
        if environment is None or environment.base == task.image:
            raise ImageError(
                f"{task.id}: image {task.image} is not here and no registry gives it: "
                "pull it, or give a recipe for its repository"
            )
        recipe = image_recipe(environment)
        if not await self._has(recipe.base):
            raise ImageError(
                f"{task.id}: base {recipe.base} is not here and no registry gives it: "
                f"pull it, or use {' or '.join(BASES)}"
            )
        if holds_repository(environment):
            return await self._baked(task, environment, recipe)
        tag = await self._store.environment(recipe)
        return TaskImage(tag=tag, workdir=environment.workdir)

    async def _has(self, tag: str) -> bool:
        """Whether an image is here, or its registry has it; that is asked once."""
        if tag in BASES.values():
            return True  # the store makes these
        if tag in self._absent:
            return False
        found = await self._store.obtain(tag)
        if not found:
            self._absent.add(tag)
        return found

    async def _baked(self, task: Task, environment: Environment, recipe: ImageRecipe) -> TaskImage:
        root = self._repositories or repositories_dir()
        folder = await anyio.to_thread.run_sync(materialize, task, root)
        baked = await self._store.bake(
            folder, task.base_commit, recipe, workdir=environment.workdir
        )
        return TaskImage(tag=baked.image, workdir=baked.workdir, snapshot=baked.snapshot)


def holds_repository(environment: Environment) -> bool:
    """Whether an image that is made for it has the repository in place.

    A lease brings it otherwise, into the one folder that is there for that in every base. Where any
    of a pool's tasks has an image with its repository, the pool needs `writable_root`.
    """
    return bool(environment.install) or environment.workdir != Environment().workdir


def pool_spec(tasks: Sequence[Task], image: str) -> SandboxSpec:
    """Sandboxes that fit these tasks; `image` is for those that have none of their own."""
    if not any(task.environment is not None for task in tasks):
        return SandboxSpec(image=image)
    return SandboxSpec(
        image=image,
        writable_root=any(_brings_repository(task) for task in tasks),
        memory_mib=MEMORY_MIB,
        disk_mib=DISK_MIB,
        pids=PIDS,
    )


def _brings_repository(task: Task) -> bool:
    environment = task.environment
    return environment is not None and (task.image is not None or holds_repository(environment))


def image_recipe(environment: Environment) -> ImageRecipe:
    """How an environment's image is made: Debian packages, then `setup`; `install` by commit."""
    base = base_tag(environment.base)
    home = () if base in BASES.values() else (AGENTS_HOME,)
    packages = " ".join(map(shlex.quote, environment.packages))
    apt = (APT.format(packages),) if packages else ()
    return ImageRecipe(
        base=base,
        commands=(*home, *apt, *environment.setup),
        install=environment.install,
    )


def official_recipe(image: str, environment: Environment) -> ImageRecipe:
    """A ready image, with a fresh repository of the one commit laid over the work tree in it.

    What was built there stays, and is ignored by git; its history, which holds the fix, goes.
    """
    history = shlex.quote(f"{environment.workdir}/.git")
    return ImageRecipe(
        base=image,
        commands=(f"rm -rf {history} && {AGENTS_HOME}",),
        # a command in the work tree has the store hand its files over to the sandboxes' user
        install=("true",),
    )


def base_tag(base: str) -> str:
    """The tag that a base goes by: `bookworm` and `debian:bookworm` are made here."""
    return BASES.get(base.removeprefix("debian:"), base)
