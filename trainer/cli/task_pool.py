"""A pool in which given tasks can run, with their images, as the command line's actions need it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio.to_thread

from patchgym.datasets.task import Task

if TYPE_CHECKING:
    from patchgym.datasets.images import TaskImages
    from patchgym.sandbox import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPool:
    """Open for the length of `open_task_pool`."""

    pool: Pool
    images: TaskImages | None
    """None when no task has an environment or an image of its own."""
    image: str
    """Tag of the image for tasks that name none."""


@asynccontextmanager
async def open_task_pool(
    tasks: Sequence[Task], *, image: str, size: int
) -> AsyncIterator[TaskPool]:
    """`image` is `auto` for the base image; `size` is how many sandboxes may be leased at once."""
    from patchgym.datasets.images import TaskImages, pool_spec
    from patchgym.sandbox import BuildAccess, ImageStore, Pool, ensure_base

    tag = await ensure_base() if image == "auto" else image
    own = any(task.environment is not None for task in tasks)
    access = BuildAccess()
    if own:
        access = await anyio.to_thread.run_sync(BuildAccess.of_this_machine)
    async with ImageStore(access=access) as store, Pool(pool_spec(tasks, tag), size=size) as pool:
        yield TaskPool(pool=pool, images=TaskImages(store) if own else None, image=tag)
