"""A sandbox with a task's repository in it, from a pool and, where it has one, the task's image."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task
from patchgym.datasets.trial import Images
from patchgym.sandbox import Sandbox, SandboxSnapshot, snapshot

LeaseFactory = Callable[[], AbstractAsyncContextManager[Sandbox]]


class SandboxSource(Protocol):
    """Whatever leases sandboxes; `Pool` and `LocalPool` are such."""

    def lease(
        self,
        *,
        timeout: float,
        borrower: str = "",
        image: str | None = None,
        snapshot: SandboxSnapshot | None = None,
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox for the length of the block; see `Pool.lease`."""
        ...


def lease_repository(
    task: Task,
    pool: SandboxSource,
    *,
    images: Images | None = None,
    repositories: Path | None = None,
    timeout: float = 120.0,
    borrower: str = "",
    on_stage: Callable[[str], None] = lambda stage: None,
) -> LeaseFactory:
    """Leases of sandboxes with the task's repository at its base commit in their workdir.

    The image is chosen as for a verdict: what `images` prepares, else the task's own, else the
    pool's. `timeout` (seconds) limits the wait for a sandbox, not the making of an image.
    `on_stage` is told what is waited for: `image`, `lease wait`, `checkout`.
    Entering the lease raises TaskError, CheckoutError, ImageError or another SandboxError.
    """

    @asynccontextmanager
    async def lease() -> AsyncIterator[Sandbox]:
        root = repositories or repositories_dir()
        on_stage("image")
        image = await images.prepare(task) if images else None
        ready = image.snapshot if image else None
        folder = None
        if ready is None:
            folder = await anyio.to_thread.run_sync(materialize, task, root)
            await snapshot(folder, task.base_commit)  # before a sandbox waits for it
        on_stage("lease wait")
        async with pool.lease(
            timeout=timeout,
            borrower=borrower or task.id,
            image=None if ready else image.tag if image else task.image,
            snapshot=ready,
        ) as sandbox:
            if folder is not None:
                on_stage("checkout")
                await sandbox.checkout(folder, task.base_commit)
            elif image is not None:
                sandbox.use_workdir(image.workdir)
            yield sandbox

    return lease
