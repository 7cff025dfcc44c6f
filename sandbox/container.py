"""One sandbox: a disposable container and the conversation with the supervisor inside it."""

from __future__ import annotations

import math
import posixpath
import socket
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from .checkout import Snapshot, snapshot
from .engine import Engine
from .errors import SandboxError, SandboxLost, SandboxUnavailable, SandboxUsageError
from .patch import AppliedPatch, apply_patch, worktree_diff
from .protocol import PIECE, VERSION, Demultiplexer, Frame, encode, result_of, run_request
from .result import CommandResult
from .spec import SandboxSpec

READY_LIMIT = 60.0  # seconds for a started container to say hello; generous on a busy machine
ANSWER_LIMIT = 30.0  # seconds past a command's own limit until the supervisor counts as gone
CANCEL_LIMIT = 5.0  # seconds to wind up a cancelled request before the sandbox is given up


class Sandbox:
    """A leased container. One request at a time; further ones wait their turn.

    Methods raise SandboxLost when the container is gone, SandboxUsageError when asked for
    something impossible. A failing command is a result.
    """

    def __init__(self, name: str, spec: SandboxSpec, stream: anyio.abc.SocketStream) -> None:
        self.name = name
        self.spec = spec
        self.lost: str | None = None
        """Why the sandbox can't be used any more, or None."""
        self._stream = stream
        self._incoming = Demultiplexer()
        self._turn = anyio.Lock()
        self._fresh = True
        self._base: Snapshot | None = None

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout: float,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        output_limit: int = 65536,
        report: bool = False,
    ) -> CommandResult:
        """Run a command to its end or its `timeout` (seconds), and kill what then remains.

        A string goes to the shell, a sequence is executed as it is. At most `output_limit` bytes
        are kept of each stream. With `report`, the command finds a file descriptor's number in
        PATCHGYM_REPORT_FD and what it writes there comes back apart from its output (16 MiB).
        """
        request = run_request(
            command,
            timeout=timeout,
            cwd=posixpath.join(self.spec.workdir, cwd or ""),
            environment=(environment or {}).items(),
            stdin=stdin,
            output_limit=output_limit,
            report=report,
        )
        self._fresh = False
        return result_of(await self._ask(request, b"D", timeout + ANSWER_LIMIT))

    async def read(self, path: str) -> bytes:
        """A file's bytes; `path` is absolute or relative to the workdir."""
        where, pieces, offset = self._path(path), [], 0
        while True:
            fields = [(b"f", where), (b"o", b"%d" % offset), (b"l", b"%d" % PIECE)]
            piece = (await self._ask(encode(b"G", fields), b"F", ANSWER_LIMIT)).fields[b"b"]
            pieces.append(piece)
            offset += len(piece)
            if len(piece) < PIECE:
                return b"".join(pieces)

    async def write(self, path: str, data: bytes) -> None:
        """Write a file, making its folders; `path` is absolute or relative to the workdir."""
        self._fresh = False
        for offset in range(0, max(len(data), 1), PIECE):
            fields = [
                (b"f", self._path(path)),
                (b"b", data[offset : offset + PIECE]),
                (b"a", b"1" if offset else b"0"),
            ]
            await self._ask(encode(b"P", fields), b"K", ANSWER_LIMIT)

    async def upload(self, tar: bytes, path: str = "/") -> None:
        """Unpack an uncompressed tar archive (at most 256 MiB) under `path`."""
        words = ["tar", "-xf", "-", "-C", posixpath.join(self.spec.workdir, path)]
        result = await self.run(words, timeout=120, stdin=tar, cwd="/")
        if not result.ok:
            reason = result.stderr.text().strip().splitlines()[-1:] or ["no reason given"]
            raise SandboxUsageError(f"could not unpack into {path}: {reason[0]}")

    async def checkout(self, repository: Path, commit: str) -> None:
        """Put one commit of a local git repository into the workdir, and nothing of its past.

        Raises CheckoutError when the repository or the commit is not there.
        """
        base = await snapshot(repository, commit)
        if not self._fresh:
            await self.run(["find", ".", "-mindepth", "1", "-delete"], timeout=60)
        await self.upload(base.tar, self.spec.workdir)
        self._base = base

    async def apply_patch(self, diff: bytes) -> AppliedPatch:
        """Apply a diff to the checked-out tree. Raises PatchError when refused or not applying."""
        return await apply_patch(self, diff)

    async def diff(self) -> bytes:
        """All that differs from the checked-out commit, new files too, as a git diff."""
        if self._base is None:
            raise SandboxUsageError("diff() needs a checkout() first")
        return await worktree_diff(self, self._base.commit)

    def is_connected(self) -> bool:
        """Whether the stream to the container is open, as far as can be told without a request."""
        raw: object = self._stream.extra(anyio.abc.SocketAttribute.raw_socket)
        if self.lost or not isinstance(raw, socket.socket):
            return self.lost is None
        try:
            return raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    async def aclose(self) -> None:
        """Hang up: the supervisor sees the end of its stdin, and the container goes."""
        self.lost = self.lost or "it was closed"
        await anyio.aclose_forcefully(self._stream)

    def _path(self, path: str) -> bytes:
        data = posixpath.join(self.spec.workdir, path).encode("utf-8", "surrogateescape")
        if b"\0" in data:
            raise SandboxUsageError("a path can't hold a zero byte")
        return data

    async def _ask(self, request: bytes, expected: bytes, limit: float) -> Frame:
        async with self._turn:
            if self.lost:
                raise SandboxLost(f"{self.name}: {self.lost}")
            try:
                await self._send(request)
                frame = await self._receive(limit)
            except anyio.get_cancelled_exc_class():
                await self._wind_up()
                raise
        if frame.kind == b"E":
            raise SandboxUsageError(frame.fields[b"m"].decode("utf-8", "replace"))
        if frame.kind != expected:
            raise self._lose(f"the supervisor answered {frame.kind!r}, not {expected!r}")
        return frame

    async def _send(self, data: bytes) -> None:
        # shielded: half a frame would make the stream useless
        try:
            with anyio.CancelScope(shield=True), anyio.fail_after(ANSWER_LIMIT):
                await self._stream.send(data)
        except TimeoutError:
            raise self._lose("the supervisor does not read its stdin") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            with anyio.CancelScope(shield=True):
                await self._receive(1.0)  # raises SandboxLost with the supervisor's last words
            raise self._lose("its container ended") from None

    async def _receive(self, limit: float) -> Frame:
        try:
            with anyio.fail_after(limit):
                while True:
                    frame = self._incoming.next()
                    if frame is not None:
                        return frame
                    self._incoming.feed(await self._stream.receive(1 << 20))
        except TimeoutError:
            raise self._lose(f"its supervisor gave no answer within {limit:.0f} s") from None
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            complaint = self._incoming.complaint.decode("utf-8", "replace").strip()
            last = complaint.splitlines()[-1:] or ["no message"]
            raise self._lose(f"its container ended ({last[0]})") from None

    async def _wind_up(self) -> None:
        """After a cancellation: stop the command and take its answer, or give the sandbox up."""
        with anyio.CancelScope(shield=True):
            try:
                await self._send(encode(b"C"))
                await self._receive(CANCEL_LIMIT)
            except SandboxError:
                self.lost = self.lost or "a cancelled command could not be stopped"

    def _lose(self, reason: str) -> SandboxLost:
        self.lost = self.lost or reason
        return SandboxLost(f"{self.name}: {self.lost}")

    async def _greet(self) -> None:
        frame = await self._receive(READY_LIMIT)
        if frame.kind != b"H" or frame.fields.get(b"v") != VERSION:
            raise self._lose("an unknown supervisor answered")


@cache
def supervisor_source() -> str:
    """The program that runs as PID 1."""
    return (files("patchgym.sandbox") / "supervisor.py").read_text("utf-8")


async def start_sandbox(
    engine: Engine, name: str, spec: SandboxSpec, *, network: str, labels: Mapping[str, str]
) -> Sandbox:
    """Start a container called `name` and wait until its supervisor is ready.

    Raises ImageError, EngineUnavailable, SandboxUnavailable; then the container may exist: remove
    it by its name.
    """
    command = ["python3", "-I", "-S", "-c", supervisor_source(), *spec.disks]
    config = _attached(spec, command, labels)
    config["WorkingDir"] = "/"
    config["HostConfig"] |= _limits(spec) | {"NetworkMode": network}
    sandbox = Sandbox(name, spec, await _wrap(await engine.launch(name, config)))
    try:
        await sandbox._greet()
    except BaseException as problem:
        await anyio.aclose_forcefully(sandbox._stream)
        if isinstance(problem, SandboxLost):
            raise SandboxUnavailable(f"did not come up: {problem}") from problem
        raise
    return sandbox


async def start_holder(
    engine: Engine, name: str, spec: SandboxSpec, *, labels: Mapping[str, str]
) -> anyio.abc.SocketStream:
    """Start the parked container that owns a slot's network; it ends when the stream closes."""
    config = _attached(spec, ["cat"], labels)
    config["HostConfig"] |= {
        "NetworkMode": "bridge" if spec.network else "none",
        "PidsLimit": 8,
        "Memory": 32 << 20,
        # or the next lease inherits TIME_WAIT sockets and can't bind their ports
        "Sysctls": {"net.ipv4.tcp_max_tw_buckets": "0"},
    }
    return await _wrap(await engine.launch(name, config))


async def _wrap(connection: socket.socket) -> anyio.abc.SocketStream:
    connection.setblocking(False)
    if connection.family == socket.AF_UNIX:
        return await anyio.abc.UNIXSocketStream.from_socket(connection)
    return await anyio.abc.SocketStream.from_socket(connection)


def _attached(spec: SandboxSpec, command: list[str], labels: Mapping[str, str]) -> dict[str, Any]:
    """A container that lives as long as its owner's end of the stream, and leaves nothing."""
    host: dict[str, Any] = {
        "AutoRemove": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
    }
    if spec.runtime:
        host["Runtime"] = spec.runtime
    return {
        "Image": spec.image,
        "Entrypoint": command[:1],
        "Cmd": command[1:],
        "User": spec.user,
        "Env": [f"{key}={value}" for key, value in spec.variables.items()],
        "Labels": dict(labels),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "HostConfig": host,
    }


def _limits(spec: SandboxSpec) -> dict[str, Any]:
    uid, gid = spec.user.split(":")
    shared = 16  # MiB of /dev/shm
    # files live in memory: what processes were promised must not shrink when files grow
    memory = (spec.memory_mib + sum(spec.disks.values()) + shared) << 20
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": math.ceil(spec.cpus * 1e9),
        "PidsLimit": spec.pids,
        "ShmSize": shared << 20,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "Tmpfs": {
            path: f"rw,exec,nosuid,nodev,size={size}m,mode={mode},uid={uid},gid={gid}"
            for path, size, mode in (
                (path, size, "1777" if path == "/tmp" else "0755")
                for path, size in spec.disks.items()
            )
        },
    }
