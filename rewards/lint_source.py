"""Where lint reports come from: a sandbox with the linters, the base commit, the diff on top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio.to_thread

from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task
from patchgym.sandbox import Linter, LintReport, PatchgymError, Pool, SandboxError, lint, snapshot

ATTEMPTS = 2  # sandboxes to try
LEASE_SECONDS = 120.0


class LintSource:
    """Lints diffs in sandboxes of a pool made with `lint_spec(await ensure_lint_image(store))`."""

    def __init__(
        self,
        pool: Pool,
        repositories: Path,
        timeout: float,
        *,
        lease_timeout: float = LEASE_SECONDS,
    ) -> None:
        """`repositories` is the folder of the materialized bundled repositories; `timeout` in
        seconds, for all linters together; `lease_timeout`, to wait for a sandbox."""
        self._pool = pool
        self._repositories = repositories
        self._timeout = timeout
        self._lease_timeout = lease_timeout

    async def __call__(self, task: Task, diff: bytes, linters: Sequence[Linter]) -> LintReport:
        """What the linters newly find in `diff`; of two with the same name, the first counts.

        Raises PatchError when the diff is refused or does not apply, SandboxError when two
        sandboxes failed, TaskError when the repository can't be used.
        """
        folder = await anyio.to_thread.run_sync(materialize, task, self._repositories)
        await snapshot(folder, task.base_commit)  # before a sandbox waits for it
        chosen = distinct(linters)
        failure: PatchgymError | None = None
        for _ in range(ATTEMPTS):
            try:
                return await self._attempt(task, diff, chosen, folder)
            except SandboxError as error:
                failure = error
        assert failure is not None
        raise failure

    async def _attempt(
        self, task: Task, diff: bytes, linters: Sequence[Linter], folder: Path
    ) -> LintReport:
        lease = self._pool.lease(timeout=self._lease_timeout, borrower=f"lint {task.id}")
        async with lease as sandbox:
            await sandbox.checkout(folder, task.base_commit)
            applied = await sandbox.apply_patch(diff)
            return await lint(sandbox, linters, timeout=self._timeout, paths=applied.paths)


def distinct(linters: Iterable[Linter]) -> tuple[Linter, ...]:
    """Without those whose name another before it has."""
    found: dict[str, Linter] = {}
    for linter in linters:
        found.setdefault(linter.tool.name, linter)
    return tuple(found.values())
