"""What the suite needs of a back end: leases, and sandboxes with the methods of `Sandbox`.

The values that go in and out (`CommandResult`, `Output`, `AppliedPatch`, the errors) are those of
`patchgym.sandbox`: they are the contract. Classes need not inherit from anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from patchgym.sandbox import AppliedPatch, CommandResult

Capability = Literal[
    "commands",
    "output",
    "timeouts",
    "background",
    "streams",
    "files",
    "snapshots",
    "git",
    "patches",
    "lease",
    "cancellation",
    "reset",
    "limits",
    "isolation",
]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
"""Every capability that there are checks for."""


class ProcessLike(Protocol):
    """A background command; see `patchgym.sandbox.Process`."""

    def output(self) -> AsyncIterator[tuple[Literal["stdout", "stderr"], bytes]]:
        """Its output as it comes."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its stdin."""
        ...

    async def close_stdin(self) -> None:
        """The end of its stdin."""
        ...

    async def wait(self) -> CommandResult:
        """Its end."""
        ...

    async def kill(self) -> CommandResult:
        """Kill it and all that it started."""
        ...

    async def __aenter__(self) -> ProcessLike: ...

    async def __aexit__(self, kind: Any, error: Any, trace: Any, /) -> object: ...


class SandboxLike(Protocol):
    """A leased sandbox; see `patchgym.sandbox.Sandbox` for what each method promises."""

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes = b"",
        output_limit: int = 65536,
        report: bool = False,
    ) -> CommandResult:
        """Run a command to its end or its `timeout`, in seconds."""
        ...

    async def start(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        stdin: bytes = b"",
        stdin_open: bool = False,
        stream: bool = False,
        output_limit: int = 65536,
    ) -> ProcessLike:
        """Start a command in the background."""
        ...

    async def read(self, path: str) -> bytes:
        """A regular file's bytes."""
        ...

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file, making its folders."""
        ...

    async def upload(self, source: bytes | Path, path: str = "") -> None:
        """Put a folder, a file, or a tar archive's content into the folder `path`."""
        ...

    async def download(self, path: str, target: Path) -> None:
        """Copy a folder's content or one file into the folder `target` of this machine."""
        ...

    async def checkout(self, repository: Path, commit: str) -> None:
        """Put one commit of a local repository into the workdir."""
        ...

    async def apply_patch(self, diff: bytes) -> AppliedPatch:
        """Apply a diff, or change nothing."""
        ...

    async def diff(self) -> bytes:
        """All that differs from the checked-out commit."""
        ...

    async def snapshot(self) -> Any:
        """The files as they are, for `Backend.lease`."""
        ...


class Backend(Protocol):
    """What gives out sandboxes, two at one time at least."""

    @property
    def claims(self) -> Collection[str]:
        """The capabilities that it is to be held to."""
        ...

    def lease(
        self, *, timeout: float, snapshot: Any = None
    ) -> AbstractAsyncContextManager[SandboxLike]:
        """A fresh sandbox for the length of the block, within `timeout` seconds."""
        ...


class Leasing(Protocol):
    """A back end that makes no claims of its own, such as `patchgym.sandbox.Pool`."""

    def lease(
        self, *, timeout: float, snapshot: Any = None
    ) -> AbstractAsyncContextManager[SandboxLike]:
        """As in `Backend`."""
        ...


@dataclass(frozen=True, slots=True)
class Claiming:
    """A pool, and what is claimed of it."""

    pool: Leasing
    """Where the leases come from."""
    claims: Collection[str] = CAPABILITIES
    """The capabilities that it is to be held to."""

    def lease(
        self, *, timeout: float, snapshot: Any = None
    ) -> AbstractAsyncContextManager[SandboxLike]:
        """A fresh sandbox for the length of the block."""
        if snapshot is None:
            return self.pool.lease(timeout=timeout)
        return self.pool.lease(timeout=timeout, snapshot=snapshot)
