"""One sandbox: a disposable container and what can be asked of it."""

from __future__ import annotations

import hashlib
import io
import posixpath
import re
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import anyio.to_thread
from anyio.abc import ByteStream

from . import telemetry
from .checkout import snapshot
from .errors import SandboxUsageError
from .link import Link
from .patch import AppliedPatch, apply_patch, worktree_diff
from .process import Process
from .protocol import ANSWER_LIMIT, PIECE, Frame, result_of, run_fields
from .result import CommandResult
from .spec import SandboxSpec

ARCHIVE_LIMIT = 256 << 20  # bytes of an archive, in or out
ARCHIVE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSnapshot:
    """What the files of a sandbox were, to start others from: see `Pool.lease`. No processes."""

    image: str
    """Image that holds everything but `folders`."""
    folders: tuple[tuple[str, bytes], ...] = field(default=(), compare=False, repr=False)
    """Folders that live in memory, and a tar archive of the content of each."""
    commit: str | None = None
    """What `diff()` compares with."""
    digest: str
    """Tells snapshots apart."""


class Connection(Protocol):
    """What a sandbox needs of its way to PID 1; `Link` and `ShellLink` are such."""

    lost: str | None

    async def ask(
        self, kind: bytes, fields: Sequence[tuple[bytes, bytes]], expected: bytes
    ) -> Frame:
        """One request and its answer."""
        ...

    async def command(self, fields: Sequence[tuple[bytes, bytes]], limit: float | None) -> Frame:
        """A command from its start to its D frame, within `limit` seconds; killed if cancelled."""
        ...

    async def start(self, fields: Sequence[tuple[bytes, bytes]], timeout: float | None) -> Process:
        """A command in the background."""
        ...

    def is_connected(self) -> bool:
        """Whether the container seems to be there, without a request."""
        ...

    async def aclose(self) -> None:
        """Hang up, which ends the container."""
        ...


class Sandbox:
    """A leased container. Any number of requests at one time.

    Methods raise SandboxLost when the container is gone, SandboxUsageError when asked for
    something impossible, such as anything after the end of the lease. A failing command is a
    result.
    """

    def __init__(
        self,
        name: str,
        spec: SandboxSpec,
        connection: Connection,
        *,
        image: str,
        commit: Callable[[], Awaitable[str]],
        base: str | None = None,
    ) -> None:
        """`image` is what it started from, `commit` makes an image of its own layer, `base` is the
        commit that is checked out in it already."""
        self.name = name
        """The container's."""
        self.spec = spec
        self._connection = connection
        self.image = image
        """What it started from."""
        self.commit = commit
        """Makes an image of its own layer."""
        self._fresh = True
        self._ended = False
        self._base = base

    @property
    def lost(self) -> str | None:
        """Why the sandbox can't be used any more, or None."""
        return self._connection.lost

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
        """Run a command to its end or its `timeout` (seconds), and kill what then remains.

        A string goes to the shell, a sequence is executed as it is. At most `output_limit` bytes
        are kept of each stream. `user` is a numeric uid:gid (see `SandboxSpec.switch_user`). With
        `report`, the command finds a file descriptor's number in PATCHGYM_REPORT_FD and what it
        writes there comes back apart from its output (16 MiB).
        """
        fields = self._command(
            command, timeout, cwd, environment, user, stdin, output_limit, report=report
        )
        with telemetry.command(self.name, self.image) as told:
            result = result_of(await self._connection.command(fields, timeout + ANSWER_LIMIT))
            told.ended(result)
        return result

    async def start(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes = b"",
        stdin_open: bool = False,
        stream: bool = False,
        output_limit: int = 65536,
    ) -> Process:
        """Start a command in the background; without a `timeout` it may run as long as the lease.

        With `stream`, its output can be read as it comes; with `stdin_open`, more can be written
        to its stdin. The rest is as in `run`.
        """
        fields = self._command(
            command,
            timeout,
            cwd,
            environment,
            user,
            stdin,
            output_limit,
            stream=stream,
            stdin_open=stdin_open,
        )
        return await self._connection.start(fields, timeout)

    async def read(self, path: str) -> bytes:
        """A regular file's bytes; `path` is absolute or relative to the workdir."""
        where, pieces, offset = self._path(path), [], 0
        while True:
            fields = [(b"f", where), (b"o", b"%d" % offset), (b"l", b"%d" % PIECE)]
            frame = await self._connection.ask(b"G", fields + self._identity(None), b"F")
            piece = frame.fields[b"b"]
            pieces.append(piece)
            offset += len(piece)
            if len(piece) < PIECE:
                return b"".join(pieces)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file, making its folders; `path` is absolute or relative to the workdir."""
        where = self._path(path)
        self._fresh = False
        for offset in range(0, max(len(data), 1), PIECE):
            fields = [
                (b"f", where),
                (b"b", data[offset : offset + PIECE]),
                (b"a", b"1" if offset else b"0"),
                *([] if mode is None else [(b"m", b"%o" % mode)]),
            ]
            await self._connection.ask(b"P", fields + self._identity(None), b"K")

    async def upload(self, source: bytes | Path, path: str = "") -> None:
        """Put a folder's or a file's copy, or an uncompressed tar archive's content, into `path`.

        `path` is a folder, absolute or relative to the workdir; at most 256 MiB. Needs `tar` in
        the image.
        """
        tar = source if isinstance(source, bytes) else await anyio.to_thread.run_sync(_pack, source)
        folder = posixpath.join(self.spec.workdir, path)
        await self._unpack(tar, folder)

    async def download(self, path: str, target: Path) -> None:
        """Copy a folder's content, or one file, into the folder `target` of this machine.

        Links that lead out of it, devices, and owners stay behind; at most 256 MiB. Needs `tar` in
        the image.
        """
        tar = await self._archive(posixpath.join(self.spec.workdir, path))
        await anyio.to_thread.run_sync(_extract, tar, target)

    async def checkout(self, repository: Path, commit: str) -> None:
        """Put one commit of a local git repository into the workdir, and nothing of its past.

        Raises CheckoutError when the repository or the commit is not there.
        """
        with telemetry.checkout(self.name, commit):
            base = await snapshot(repository, commit)
            if not self._fresh:
                await self.run(["find", ".", "-mindepth", "1", "-delete"], timeout=60)
            await self._unpack(base.tar, self.spec.workdir)
            self._base = base.commit

    def use_workdir(self, path: str) -> None:
        """Where commands start and relative paths begin from now on; needs a writable root."""
        if not self.spec.writable_root and path != self.spec.workdir:
            raise SandboxUsageError("another workdir needs SandboxSpec(writable_root=True)")
        self.spec = replace(self.spec, workdir=path)

    async def apply_patch(self, diff: bytes) -> AppliedPatch:
        """Apply a diff to the checked-out tree. Raises PatchError when refused or not applying."""
        return await apply_patch(self, diff)

    async def diff(self) -> bytes:
        """All that differs from the checked-out commit, new files too, as a git diff."""
        if self._base is None:
            raise SandboxUsageError("diff() needs a checkout() first")
        return await worktree_diff(self, self._base)

    async def snapshot(self) -> SandboxSnapshot:
        """Its files as they are now, to lease other sandboxes with.

        With `writable_root` that is an image on the same Docker host, which stays until it is
        removed (`patchgym images prune` does); else it is in this process's memory: at most
        256 MiB a folder, and `tar` in the image. Processes and /dev/shm are not in it.
        """
        self._use()
        if self.spec.writable_root:
            image = await self.commit()
            return SandboxSnapshot(image=image, commit=self._base, digest=image)
        folders = [(folder, await self._archive(folder)) for folder in self.spec.disks]
        digest = hashlib.sha256(self.image.encode())
        for folder, tar in folders:
            digest.update(folder.encode() + hashlib.sha256(tar).digest())
        return SandboxSnapshot(
            image=self.image, folders=tuple(folders), commit=self._base, digest=digest.hexdigest()
        )

    async def restore(self, snapshot: SandboxSnapshot) -> None:
        """Unpack a snapshot's folders; its image must be what this sandbox started from."""
        for folder, tar in snapshot.folders:
            await self._unpack(tar, folder)
        self._base = snapshot.commit

    def is_connected(self) -> bool:
        """Whether the container seems to be there, as far as can be told without a request."""
        return self._connection.is_connected()

    def hand_over(self) -> tuple[ByteStream, bytes, bool]:
        """The supervisor's stream, what came of it and was not read yet, and whether it is plain
        (not Docker's), for another `Link` to go on with; this sandbox then only holds the lease.

        Raises SandboxUsageError for a sandbox without a supervisor.
        """
        self._use()
        if not isinstance(self._connection, Link):
            raise SandboxUsageError("its image has no supervisor: it can't be used from afar")
        return self._connection.hand_over()

    def end(self) -> None:
        """The lease is over: refuse whatever is asked from now on."""
        self._ended = True

    async def aclose(self) -> None:
        """Hang up: the supervisor sees the end of its stdin, and the container goes."""
        self._ended = True
        await self._connection.aclose()

    def _use(self) -> None:
        if self._ended:
            raise SandboxUsageError(f"the lease of {self.name} has ended: take another")

    def _command(
        self,
        command: str | Sequence[str],
        timeout: float | None,
        cwd: str | None,
        environment: Mapping[str, str] | None,
        user: str | None,
        stdin: bytes,
        output_limit: int,
        **how: bool,
    ) -> list[tuple[bytes, bytes]]:
        """The fields of a command that is about to run here."""
        fields = run_fields(
            command,
            timeout=timeout,
            cwd=posixpath.join(self.spec.workdir, cwd or ""),
            environment=(environment or {}).items(),
            stdin=stdin,
            output_limit=output_limit,
            **how,
        )
        self._use()
        self._fresh = False
        return fields + self._identity(user)

    def _identity(self, user: str | None) -> list[tuple[bytes, bytes]]:
        if user is not None and not re.fullmatch(r"\d+:\d+", user):
            raise SandboxUsageError(f"user must be numeric uid:gid, not {user!r}")
        if not self.spec.switch_user:
            if user not in (None, self.spec.user):
                raise SandboxUsageError(f"user {user}: needs SandboxSpec(switch_user=True)")
            return []
        uid, _, gid = (user or self.spec.user).partition(":")
        return [(b"u", uid.encode()), (b"g", gid.encode())]

    def _path(self, path: str) -> bytes:
        self._use()
        data = posixpath.join(self.spec.workdir, path).encode("utf-8", "surrogateescape")
        if b"\0" in data:
            raise SandboxUsageError("a path can't hold a zero byte")
        return data

    async def _unpack(self, tar: bytes, folder: str) -> None:
        words = ["tar", "-xf", "-", "-C", folder]
        if len(tar) > ARCHIVE_LIMIT:
            raise SandboxUsageError(f"{len(tar) >> 20} MiB in one archive; the limit is 256 MiB")
        result = await self.run(words, timeout=ARCHIVE_SECONDS, stdin=tar, cwd="/")
        if not result.ok:
            full = "disk" in result.limits_hit
            reason = f"its disk is full ({self.spec.disk_mib} MiB)" if full else _reason(result)
            raise SandboxUsageError(f"could not unpack into {folder}: {reason}")

    async def _archive(self, path: str) -> bytes:
        folder, name = posixpath.split(path.rstrip("/"))
        probe = await self.run(["test", "-d", path], timeout=ANSWER_LIMIT, cwd="/")
        where, what = (path, ".") if probe.ok else (folder, name)
        result = await self.run(
            ["tar", "-cf", "-", "-C", where, "--", what],
            timeout=ARCHIVE_SECONDS,
            cwd="/",
            output_limit=2 * ARCHIVE_LIMIT,
        )
        if not result.ok:
            raise SandboxUsageError(f"could not pack {path}: {_reason(result)}")
        data = result.stdout.head + result.stdout.tail
        if result.stdout.dropped or len(data) > ARCHIVE_LIMIT:
            raise SandboxUsageError(f"{path} is over 256 MiB")
        return _content(data)


def _content(tar: bytes) -> bytes:
    """Without the folder itself, whose mode and times may not be for its user to set."""
    return tar[512:] if tar[:100].rstrip(b"\0") == b"./" else tar


def _reason(result: CommandResult) -> str:
    """The first complaint; tar's last one only says that there were some."""
    return (result.stderr.text().strip().splitlines() or ["no reason given"])[0]


def _pack(source: Path) -> bytes:
    if not source.exists():
        raise SandboxUsageError(f"no file or folder {source}")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for each in sorted(source.iterdir()) if source.is_dir() else [source]:
            archive.add(each, each.name)
    return buffer.getvalue()


def _extract(tar: bytes, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        try:
            archive.extractall(target, filter="data")
        except tarfile.FilterError as problem:
            raise SandboxUsageError(f"refused to unpack: {problem}") from problem
