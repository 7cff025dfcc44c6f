"""The local fake: sandboxes without Docker and WITHOUT ISOLATION, for tests and development.

A lease is a folder of its own and a supervisor, the same program that is PID 1 in a container, as
a child of this process. So commands, timeouts, streams, background commands, files, checkouts,
patches and cancellation behave as they do in a container; `LocalPool.claims` names those
capabilities, and the conformance suite holds it to them.

What it does not do:

- It isolates nothing. Commands run as this user, with this machine's files, network, processes and
  /tmp before them; one can read your keys and kill your shell. Never run untrusted code in it.
- It limits nothing but time and output: memory, processes, disk and CPU are the whole machine's,
  and no result ever names `memory` or `pids`. `peak_memory` is None, `cpu_seconds` counts only
  processes that have ended.
- The workdir, the home folder and TMPDIR are inside the lease's folder, not at the spec's places.
  /tmp, /dev/shm and whatever else a command writes to outside of that folder stays as it left it.
- The image counts for nothing: the tools are the machine's, `python3` is the one that runs us.
- A command that kills its supervisor can leave processes behind that scrubbed their environment.
  When this process dies by SIGKILL, its sandboxes' processes die too, but their folders stay.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import anyio
import anyio.abc
import anyio.to_thread

from .container import Sandbox, SandboxSnapshot
from .errors import (
    EngineUnavailable,
    LeaseTimeout,
    SandboxLost,
    SandboxUnavailable,
    SandboxUsageError,
)
from .link import Link
from .spec import SandboxSpec
from .supervised import supervisor_source

END_LIMIT = 10.0  # seconds for a supervisor to go by itself at the end of its lease
SWEEP_ROUNDS = 200  # looks for processes that remain
MARK = "PATCHGYM_LOCAL"
CLAIMS = frozenset(
    {
        *("commands", "output", "timeouts", "background", "streams", "files", "snapshots"),
        *("git", "patches", "lease", "cancellation", "reset"),
    }
)
"""What the local fake promises, in the conformance suite's words; not isolation, not limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpec(SandboxSpec):
    """A spec whose folders are inside one lease's folder."""

    root: str
    """The lease's folder, absolute."""

    @property
    def disks(self) -> Mapping[str, int]:
        """Folders in the place of the spec's; their sizes (MiB) are not enforced."""
        sizes = (self.disk_mib, self.disk_mib, max(self.disk_mib // 4, 8))
        places = (self.workdir, f"{self.root}/tmp", f"{self.root}/home")
        return dict(zip(places, sizes, strict=True))


class LocalPool:
    """Leases `LocalPool.lease` as `Pool.lease` does, at most `size` at a time. See the module."""

    def __init__(self, spec: SandboxSpec, *, size: int = 4) -> None:
        """Raises SandboxUsageError for a spec that needs a container to make sense."""
        if size < 1:
            raise SandboxUsageError(f"a pool needs at least one slot, not {size}")
        if spec.switch_user or spec.writable_root or spec.runtime is not None:
            raise SandboxUsageError("switch_user, writable_root and runtime need a container")
        if spec.supervisor not in ("auto", "python"):
            raise SandboxUsageError(f"no {spec.supervisor} supervisor without a container")
        self.spec = spec
        self.claims = CLAIMS
        """Capabilities, in the conformance suite's words."""
        self._size = size
        self._slots = anyio.Semaphore(size)
        self._leases: dict[str, tuple[float, str]] = {}
        self._open = False

    async def __aenter__(self) -> Self:
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False

    @asynccontextmanager
    async def lease(
        self,
        *,
        timeout: float,
        borrower: str = "",
        image: str | None = None,
        snapshot: SandboxSnapshot | None = None,
    ) -> AsyncIterator[Sandbox]:
        """A fresh sandbox for the length of the block; its processes and its folder end with it.

        `timeout` (seconds) limits the wait for one of `size` to be free; `borrower` names the lease
        in other callers' errors; `image` is ignored. Raises LeaseTimeout, EngineUnavailable when
        the pool is not open, SandboxUnavailable when no supervisor can be started.
        """
        if not self._open:
            raise EngineUnavailable("the pool is closed")
        await self._wait_for_slot(timeout)
        name = f"patchgym-local-{secrets.token_hex(6)}"
        self._leases[name] = (anyio.current_time(), borrower)
        try:
            async with _sandbox(self.spec, name) as sandbox:
                if snapshot is not None:
                    await sandbox.restore(_moved(snapshot, sandbox.spec))
                yield sandbox
        finally:
            del self._leases[name]
            self._slots.release()

    async def _wait_for_slot(self, timeout: float) -> None:
        try:
            self._slots.acquire_nowait()
            return
        except anyio.WouldBlock:
            pass
        try:
            with anyio.fail_after(max(timeout, 0)):
                await self._slots.acquire()
        except TimeoutError:
            since, borrower = min(self._leases.values())
            who = f" by {borrower}" if borrower else ""
            raise LeaseTimeout(
                f"no sandbox within {timeout:.1f} s: all {self._size} are leased, "
                f"longest lease {anyio.current_time() - since:.1f} s{who}"
            ) from None


@asynccontextmanager
async def _sandbox(spec: SandboxSpec, name: str) -> AsyncIterator[Sandbox]:
    """A supervisor and its folder, and the end of both."""
    parts = _Parts(name)
    try:
        await anyio.to_thread.run_sync(parts.make, spec)
        here = parts.spec
        assert here is not None
        stream = await anyio.abc.UNIXSocketStream.from_socket(parts.socket)
        link = Link(name, stream, plain=True)
        sandbox = Sandbox(name, here, link, image=spec.image, commit=_no_image)
        try:
            await link.greet()
            yield sandbox
        except SandboxLost as problem:
            if link.kind:
                raise
            raise SandboxUnavailable(f"did not come up: {problem}") from problem
        finally:
            await sandbox.aclose()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(parts.end)


class _Parts:
    """What a lease is made of; its methods block, and belong into threads.

    They return nothing: what a thread returns to a cancelled task is lost.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.socket, self.theirs = socket.socketpair()
        self.socket.setblocking(False)
        self.root: str | None = None
        self.spec: LocalSpec | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def make(self, spec: SandboxSpec) -> None:
        """Folders and supervisor; what the latter says of a crash is on our stderr."""
        self.root = tempfile.mkdtemp(prefix="patchgym-local-")
        self.spec = here = _inside(self.root, spec)
        for folder in here.disks:
            os.mkdir(folder)
        command = [sys.executable, "-I", "-S", "-c", supervisor_source(), *here.disks]
        end = self.theirs.fileno()
        try:
            self.process = subprocess.Popen(
                command, stdin=end, stdout=end, cwd="/", start_new_session=True,
                env={**here.variables, MARK: self.name},
            )  # fmt: skip
        except OSError as problem:
            raise SandboxUnavailable(f"can't start a supervisor: {problem}") from problem
        finally:
            self.theirs.close()

    def end(self) -> None:
        """See the supervisor gone, kill what escaped it, and remove the folder."""
        self.socket.close()
        self.theirs.close()
        if self.process is not None:
            try:
                self.process.wait(END_LIMIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for _ in range(SWEEP_ROUNDS):
                if not _kill_marked(f"{MARK}={self.name}".encode()):
                    break
        if self.root is not None:
            _remove(self.root)


def _inside(root: str, spec: SandboxSpec) -> LocalSpec:
    given = {name: getattr(spec, name) for name in SandboxSpec.__dataclass_fields__}
    given |= {"workdir": f"{root}/work", "user": f"{os.getuid()}:{os.getgid()}"}
    given["environment"] = {
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}",
        "HOME": f"{root}/home",
        "TMPDIR": f"{root}/tmp",
        **spec.environment,
    }
    return LocalSpec(root=root, **given)


def _remove(root: str) -> None:
    for folder, names, _ in os.walk(root):
        for each in names:  # a folder without permissions could not be emptied
            if not os.path.islink(place := os.path.join(folder, each)):
                os.chmod(place, 0o700)
    shutil.rmtree(root, ignore_errors=True)


def _kill_marked(mark: bytes) -> int:
    """SIGKILL to every process that was born with `mark` in its environment; how many."""
    killed = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue  # it is gone, or another user's
    return killed


def _moved(snapshot: SandboxSnapshot, spec: SandboxSpec) -> SandboxSnapshot:
    """A snapshot of another lease, for this one's folders, which have other names."""
    contents = [tar for _, tar in snapshot.folders]
    return replace(snapshot, folders=tuple(zip(spec.disks, contents, strict=True)))


async def _no_image() -> str:
    raise SandboxUsageError("the local fake makes no images")
