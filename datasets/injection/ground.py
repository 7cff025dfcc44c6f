"""The ground that mutants are tried on: sandboxes with the code at hand, as its tests need it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from patchgym.datasets.building import BuildFailure, environment_of
from patchgym.datasets.environment import Environment
from patchgym.datasets.images import TaskImage, image_recipe
from patchgym.datasets.recipes import Recipe, find_recipe
from patchgym.sandbox import ImageStore, Pool, Sandbox

from .origin import Origin

COVERAGE = "pip install --break-system-packages coverage"
OLDER = "pip install coverage"  # pip before 23 has no such flag
LEASE = 300.0  # seconds to wait for a sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """One environment's sandboxes for one commit."""

    origin: Origin
    environment: Environment
    pool: Pool
    image: TaskImage

    @asynccontextmanager
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        """A fresh one, with the commit checked out."""
        ready = self.image.snapshot
        async with self.pool.lease(
            timeout=LEASE,
            borrower="injection",
            image=None if ready else self.image.tag,
            snapshot=ready,
        ) as sandbox:
            if ready is not None:
                sandbox.use_workdir(self.image.workdir)
            else:
                await sandbox.checkout(self.origin.repository, self.origin.commit)
            yield sandbox


async def environment_for(
    origin: Origin,
    store: ImageStore,
    *,
    recipes: Sequence[Recipe] = (),
    repo: str = "",
    subproject: str = "",
) -> Environment:
    """The first recipe for `repo`, else what is built from the code's own manifests.

    Code without a manifest gets the plain environment. Raises BuildFailure.
    """
    recipe = find_recipe(recipes, repo, None) if repo else None
    if recipe is not None:
        return recipe.environment
    try:
        return await environment_of(
            origin.repository,
            origin.commit,
            store=store,
            recipes=recipes,
            subproject=subproject,
        )
    except BuildFailure as failure:
        if failure.kind == "no_python_manifest" and not subproject:
            return Environment()
        raise


async def image_of(origin: Origin, environment: Environment, store: ImageStore) -> TaskImage:
    """The image for an environment, made when it is missing. Raises ImageError, CheckoutError."""
    recipe = image_recipe(environment)
    if recipe.install:
        baked = await store.bake(
            origin.repository, origin.commit, recipe, workdir=environment.workdir
        )
        return TaskImage(tag=baked.image, workdir=baked.workdir, snapshot=baked.snapshot)
    tag = await store.environment(recipe)
    return TaskImage(tag=tag, workdir=environment.workdir)


async def with_coverage(environment: Environment, store: ImageStore) -> Environment:
    """The same environment with the `coverage` package on top."""
    below = await store.environment(image_recipe(environment))
    return replace(environment, base=below, packages=(), setup=(f"{COVERAGE} || {OLDER}",))
