"""A pool in which given tasks can run, with their images."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio.to_thread

from patchgym.datasets.task import Task

if TYPE_CHECKING:
    from patchgym.datasets.images import TaskImages
    from patchgym.sandbox import Pool, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPool:
    """Open for the length of `open_task_pool`."""

    pool: Pool
    images: TaskImages | None
    """None when no task has an environment or an image of its own."""
    image: str
    """Tag of the image for tasks that name none."""
    spec: SandboxSpec
    """Of the pool's sandboxes, for another pool of the same kind."""


@asynccontextmanager
async def open_task_pool(
    tasks: Sequence[Task], *, image: str, size: int, memory_mib: int = 0
) -> AsyncIterator[TaskPool]:
    """`image` is `auto` for the base image; `size` is how many sandboxes may be leased at once.

    `memory_mib` limits the sandboxes of tasks that have no environment of their own; 0 leaves the
    default.
    """
    from patchgym.datasets.images import TaskImages, pool_spec
    from patchgym.sandbox import BuildAccess, ImageStore, Pool, ensure_base

    tag = await ensure_base() if image == "auto" else image
    own = any(task.environment is not None for task in tasks)
    access = BuildAccess()
    if own:
        access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    spec = pool_spec(tasks, tag)
    if memory_mib and not own:
        spec = replace(spec, memory_mib=memory_mib)
    async with ImageStore(access=access) as store, Pool(spec, size=size) as pool:
        yield TaskPool(pool=pool, images=TaskImages(store) if own else None, image=tag, spec=spec)
