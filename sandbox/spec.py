"""What a sandbox is made of: image, user, limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from .errors import SandboxUsageError

HOME = "/home/agent"
DETERMINISTIC: Mapping[str, str] = MappingProxyType(
    {"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "HOME": HOME}
)
"""Environment of every command unless the spec or the command says otherwise."""
PROXY_PORT = 3128
PROXY: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"),
        f"http://127.0.0.1:{PROXY_PORT}",
    )
)
"""Environment of commands behind an allow-list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """How to make one kind of sandbox. Raises SandboxUsageError on values that can't work."""

    image: str
    """Tag or digest of an image; nothing needs to be in it, not even a shell."""
    user: str = "1000:1000"
    """Numeric uid:gid of every command, and of PID 1 unless `switch_user`."""
    switch_user: bool = False
    """Let commands name another user. PID 1 then is root with no capability but to change users
    and to kill, and so are the commands that ask to be root."""
    capabilities: tuple[str, ...] = ()
    """Linux capabilities that the container keeps, such as CHOWN. For image builds, where the
    commands are the owner's own and install packages as root; leave it empty for untrusted code."""
    workdir: str = "/workspace"
    """Absolute path of the writable folder where commands start (a tmpfs)."""
    memory_mib: int = 512
    """Memory for processes, MiB; files in the tmpfs folders have `disk_mib` on top."""
    cpus: float = 1.0
    """CPU share, in cores; a command that wants more is slowed, not killed."""
    pids: int = 256
    """Most processes and threads at one time, PID 1 included."""
    disk_mib: int = 256
    """Room in `workdir`, MiB; /tmp gets as much again, the home folder a quarter. With
    `writable_root`, the largest file that can be written."""
    writable_root: bool = False
    """Write to the container's own layer, on the daemon's disk, instead of to memory: for images
    that bring their own work tree. There is no limit then to the sum of the files."""
    network: Literal["none", "bridge"] | tuple[str, ...] = "none"
    """none leaves only a loopback interface; bridge joins Docker's default bridge; a tuple of host
    names (`*.example.org` for all under one; `:port` for other ports than 80 and 443) lets HTTP and
    HTTPS through to those alone, by a proxy that the environment names."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Extra environment of every command."""
    runtime: str | None = None
    """Docker runtime, such as runsc or crun; None takes the daemon's default."""
    supervisor: Literal["auto", "static", "python", "shell"] = "auto"
    """What runs as PID 1. auto takes the static program, python3 of the image on machines that
    there is none for, and at last the image's sh (see docs/sandbox.md for what that can't do)."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+:\d+", self.user):
            raise SandboxUsageError(f"user must be numeric uid:gid, not {self.user!r}")
        if self.network not in ("none", "bridge") and not isinstance(self.network, tuple):
            raise SandboxUsageError(
                f"network is none, bridge or a tuple of host names, not {self.network!r}"
            )
        if not self.workdir.startswith("/") or self.workdir in ("/", "/tmp", HOME):
            raise SandboxUsageError(f"workdir must be an absolute folder, not {self.workdir!r}")
        wrong = [name for name in self.capabilities if not re.fullmatch("[A-Z]+(_[A-Z]+)*", name)]
        if wrong:
            raise SandboxUsageError(f"capabilities are names such as CHOWN, not {wrong[0]!r}")
        if min(self.memory_mib, self.disk_mib) < 16 or self.pids < 8 or self.cpus <= 0:
            raise SandboxUsageError("limits too small: memory, disk >= 16 MiB, pids >= 8, cpus > 0")

    @property
    def disks(self) -> Mapping[str, int]:
        """Writable folders in memory and their sizes, MiB; else all is read-only, or writable."""
        if self.writable_root:
            return {}
        return {
            self.workdir: self.disk_mib,
            "/tmp": self.disk_mib,
            HOME: max(self.disk_mib // 4, 8),
        }

    @property
    def variables(self) -> dict[str, str]:
        """The whole environment that a container starts with."""
        proxy = PROXY if isinstance(self.network, tuple) else {}
        return {**DETERMINISTIC, **proxy, **self.environment}
