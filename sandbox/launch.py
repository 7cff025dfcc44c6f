"""Starts containers: sandboxes, and the holders of their networks."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import anyio
import anyio.abc

from .container import Connection, Sandbox
from .engine import Engine, Finish
from .errors import SandboxLost, SandboxUnavailable
from .link import Link
from .shell_link import ShellLink
from .spec import PROXY_PORT, SandboxSpec
from .supervised import Supervised

SNAPSHOTS = "patchgym/snapshot"
SNAPSHOT_LABEL = "patchgym.snapshot"
"""Label of snapshots' images; its value is what the sandbox started from."""
SHARED_MEMORY = 16  # MiB of /dev/shm
# Engines differ in their defaults. nproc counts a user's processes on the whole machine, so it is
# wide: the pids limit is what holds. Podman asks for more of it than some services may have.
ULIMITS: Mapping[str, int] = MappingProxyType({"core": 0, "nofile": 16384, "nproc": 32768})


async def start_sandbox(
    engine: Engine,
    name: str,
    spec: SandboxSpec,
    *,
    image: str,
    supervised: Supervised,
    network: str,
    labels: Mapping[str, str],
) -> Sandbox:
    """Start a container called `name` and wait until its supervisor is ready.

    Raises ImageError, EngineUnavailable, SandboxUnavailable; then the container may exist: remove
    it by its name.
    """
    config = _attached(spec, supervised, supervised.command(tuple(spec.disks)), labels)
    limits = _limits(spec)
    if not spec.writable_root:
        # Podman knows the owner as "the user of the container" only
        limits["Tmpfs"] = _tmpfs(spec, owned=not await engine.is_podman())
    config["HostConfig"] |= limits | {"NetworkMode": network}
    stream, early = await engine.launch(name, config)
    connection: Connection
    if supervised.kind == "shell":
        connection = ShellLink(name, engine, stream)
    else:
        connection = await _greeted(Link(name, stream, early))

    async def commit() -> str:
        tag = f"{SNAPSHOTS}:{secrets.token_hex(8)}"
        finish = Finish(
            tag=tag,
            labels={SNAPSHOT_LABEL: image},
            message="patchgym snapshot",
            user=spec.user,
            workdir=spec.workdir,
        )
        await engine.commit(name, finish)
        return tag

    return Sandbox(name, spec, connection, image=image, commit=commit)


async def start_holder(
    engine: Engine,
    name: str,
    spec: SandboxSpec,
    *,
    supervised: Supervised,
    labels: Mapping[str, str],
) -> tuple[anyio.abc.ByteStream, bytes]:
    """Start the parked container that owns a slot's network; it ends when the stream closes.

    With an allow-list, the stream and its first bytes are for a `Proxy` to serve.
    """
    listed = isinstance(spec.network, tuple)
    command = supervised.relay(PROXY_PORT) if listed else supervised.command(())
    config = _attached(spec, supervised, command, labels)
    config["HostConfig"] |= {
        "NetworkMode": "bridge" if spec.network == "bridge" else "none",
        "PidsLimit": 8,
        "Memory": 32 << 20,
        # or the next lease inherits TIME_WAIT sockets and can't bind their ports
        "Sysctls": {"net.ipv4.tcp_max_tw_buckets": "0"},
    }
    return await engine.launch(name, config)


async def _greeted(link: Link) -> Link:
    try:
        await link.greet()
    except BaseException as problem:
        await link.aclose()
        if isinstance(problem, SandboxLost):
            raise SandboxUnavailable(f"did not come up: {problem}") from problem
        raise
    return link


def _attached(
    spec: SandboxSpec, supervised: Supervised, command: list[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """A container that lives as long as its owner's end of the stream, and leaves nothing."""
    host: dict[str, Any] = {
        "AutoRemove": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": True,
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "Ulimits": [_ulimit(name, size) for name, size in ULIMITS.items()],
    }
    switching = ("SETUID", "SETGID", "KILL") if spec.switch_user else ()
    if switching or spec.capabilities:
        host["CapAdd"] = sorted({*switching, *spec.capabilities})
    if spec.runtime:
        host["Runtime"] = spec.runtime
    return {
        "Image": supervised.image,
        "Entrypoint": command[:1],
        "Cmd": command[1:],
        "User": "0:0" if spec.switch_user else spec.user,
        "WorkingDir": "/",
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
    # files live in memory: what processes were promised must not shrink when files grow
    memory = (spec.memory_mib + sum(spec.disks.values()) + SHARED_MEMORY) << 20
    limits: dict[str, Any] = {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": math.ceil(spec.cpus * 1e9),
        "PidsLimit": spec.pids,
        "ShmSize": SHARED_MEMORY << 20,
    }
    if spec.writable_root:
        limits["ReadonlyRootfs"] = False
        # (an update replaces the list as a whole)
        sizes = {**ULIMITS, "fsize": spec.disk_mib << 20}
        limits["Ulimits"] = [_ulimit(name, size) for name, size in sizes.items()]
    return limits


def _ulimit(name: str, size: int) -> dict[str, str | int]:
    return {"Name": name, "Soft": size, "Hard": size}


def _tmpfs(spec: SandboxSpec, *, owned: bool) -> dict[str, str]:
    uid, gid = spec.user.split(":")
    private = f"mode=0755,uid={uid},gid={gid}" if owned else "mode=0755,U"
    options = {path: "mode=1777" if path == "/tmp" else private for path in spec.disks}
    return {
        path: f"rw,exec,nosuid,nodev,size={size}m,{options[path]}"
        for path, size in spec.disks.items()
    }
