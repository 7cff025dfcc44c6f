"""What a sandbox is made of: image, user, limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .errors import SandboxUsageError

HOME = "/home/agent"
DETERMINISTIC: Mapping[str, str] = MappingProxyType(
    {"TZ": "UTC", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "HOME": HOME}
)
"""Environment of every command unless the spec or the command says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """How to make one kind of sandbox. Raises SandboxUsageError on values that can't work."""

    image: str
    """Tag or digest of a local image with /bin/sh and Python 3.7 or newer at `python3`."""
    user: str = "1000:1000"
    """Numeric uid:gid of PID 1 and of every command."""
    workdir: str = "/workspace"
    """Absolute path of the writable folder where commands start (a tmpfs)."""
    memory_mib: int = 512
    """Memory for processes, MiB; files in the tmpfs folders have `disk_mib` on top."""
    cpus: float = 1.0
    """CPU share, in cores; a command that wants more is slowed, not killed."""
    pids: int = 256
    """Most processes and threads at one time, PID 1 included."""
    disk_mib: int = 256
    """Room in `workdir`, MiB; /tmp gets as much again, the home folder a quarter."""
    network: bool = False
    """True joins Docker's default bridge; False leaves only a loopback interface."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Extra environment of every command."""
    runtime: str | None = None
    """Docker runtime, such as runsc or crun; None takes the daemon's default."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d+:\d+", self.user):
            raise SandboxUsageError(f"user must be numeric uid:gid, not {self.user!r}")
        if not self.workdir.startswith("/") or self.workdir in ("/", "/tmp", HOME):
            raise SandboxUsageError(f"workdir must be an absolute folder, not {self.workdir!r}")
        if min(self.memory_mib, self.disk_mib) < 16 or self.pids < 8 or self.cpus <= 0:
            raise SandboxUsageError("limits too small: memory, disk >= 16 MiB, pids >= 8, cpus > 0")

    @property
    def disks(self) -> Mapping[str, int]:
        """Writable folders and their sizes, MiB. Everything else is read-only."""
        return {
            self.workdir: self.disk_mib,
            "/tmp": self.disk_mib,
            HOME: max(self.disk_mib // 4, 8),
        }

    @property
    def variables(self) -> dict[str, str]:
        """The whole environment that a container starts with."""
        return {**DETERMINISTIC, **self.environment}
