"""The pool for scripts without an event loop: the same calls, which wait instead of being awaited.

    with BlockingPool(SandboxSpec(image=...), size=2) as pool, pool.lease(timeout=60) as sandbox:
        print(sandbox.run("pytest -q", timeout=60).stdout.text())

An event loop in a thread of its own does the work, so leases may be used from several threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from .container import Sandbox, SandboxSnapshot
from .engine import Engine
from .patch import AppliedPatch
from .pool import Pool
from .pool_core import PoolStatistics
from .result import CommandResult
from .spec import SandboxSpec


class BlockingSandbox:
    """`Sandbox`, waiting. Methods and errors are those of `Sandbox`."""

    def __init__(self, sandbox: Sandbox, portal: BlockingPortal) -> None:
        self._sandbox = sandbox
        self._portal = portal
        self.name = sandbox.name
        """The container's."""

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes = b"",
        output_limit: int = 65536,
    ) -> CommandResult:
        """See `Sandbox.run`."""
        return self._portal.call(
            partial(
                self._sandbox.run,
                command,
                timeout=timeout,
                cwd=cwd,
                environment=environment,
                user=user,
                stdin=stdin,
                output_limit=output_limit,
            )
        )

    def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        return self._portal.call(self._sandbox.read, path)

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """See `Sandbox.write`."""
        self._portal.call(partial(self._sandbox.write, path, data, mode=mode))

    def upload(self, source: bytes | Path, path: str = "") -> None:
        """See `Sandbox.upload`."""
        self._portal.call(self._sandbox.upload, source, path)

    def download(self, path: str, target: Path) -> None:
        """See `Sandbox.download`."""
        self._portal.call(self._sandbox.download, path, target)

    def checkout(self, repository: Path, commit: str) -> None:
        """See `Sandbox.checkout`."""
        self._portal.call(self._sandbox.checkout, repository, commit)

    def apply_patch(self, diff: bytes) -> AppliedPatch:
        """See `Sandbox.apply_patch`."""
        return self._portal.call(self._sandbox.apply_patch, diff)

    def diff(self) -> bytes:
        """See `Sandbox.diff`."""
        return self._portal.call(self._sandbox.diff)

    def snapshot(self) -> SandboxSnapshot:
        """See `Sandbox.snapshot`."""
        return self._portal.call(self._sandbox.snapshot)


class BlockingPool:
    """`Pool`, waiting. A context manager."""

    def __init__(self, spec: SandboxSpec, *, size: int, hosts: Sequence[str | Engine] = ()) -> None:
        self._make = partial(Pool, spec, size=size, hosts=hosts)

    def __enter__(self) -> Self:
        self._portals = start_blocking_portal()
        self._portal = self._portals.__enter__()
        try:
            self._pool = self._portal.call(self._make)
            self._opened: AbstractContextManager[Pool] = self._portal.wrap_async_context_manager(
                self._pool
            )
            self._opened.__enter__()
        except BaseException as error:
            self._portals.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._opened.__exit__(kind, error, trace)
        finally:
            self._portals.__exit__(kind, error, trace)

    @contextmanager
    def lease(
        self,
        *,
        timeout: float,
        borrower: str = "",
        image: str | None = None,
        snapshot: SandboxSnapshot | None = None,
    ) -> Iterator[BlockingSandbox]:
        """See `Pool.lease`."""
        lease = self._pool.lease(timeout=timeout, borrower=borrower, image=image, snapshot=snapshot)
        with self._portal.wrap_async_context_manager(lease) as sandbox:
            yield BlockingSandbox(sandbox, self._portal)

    def statistics(self) -> PoolStatistics:
        """See `Pool.statistics`."""
        return self._portal.call(self._pool.statistics)
