"""Finds containers whose owner is dead, and removes those and no others.

Every container carries its owner in labels: host, boot, PID namespace, process id and that
process's start time, so that neither a reused process id nor a reboot can be mistaken for a live
owner. An owner that can't be judged from here (another machine, another PID namespace) counts as
alive.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine

KIT = "patchgym.kit"
KIT_NAME = "sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that a container belongs to."""

    host: str
    """Host name."""
    boot: str
    """The kernel's boot id."""
    namespace: str
    """Identity of the PID namespace that `pid` is counted in."""
    pid: int
    """Process id."""
    started: str
    """Start time of the process, in clock ticks since boot."""

    def labels(self) -> dict[str, str]:
        """As container labels."""
        return {
            KIT: KIT_NAME,
            "patchgym.owner.host": self.host,
            "patchgym.owner.boot": self.boot,
            "patchgym.owner.namespace": self.namespace,
            "patchgym.owner.pid": str(self.pid),
            "patchgym.owner.started": self.started,
        }

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Owner | None:
        """The owner named in `labels`, or None when they are not ours or not whole."""
        try:
            return cls(
                host=labels["patchgym.owner.host"],
                boot=labels["patchgym.owner.boot"],
                namespace=labels["patchgym.owner.namespace"],
                pid=int(labels["patchgym.owner.pid"]),
                started=labels["patchgym.owner.started"],
            )
        except (KeyError, ValueError):
            return None


def current_owner() -> Owner:
    """This process."""
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        boot=_boot(),
        namespace=os.readlink("/proc/self/ns/pid"),
        pid=pid,
        started=_start_time(pid) or "",
    )


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_time(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def is_dead(owner: Owner, here: Owner, *, same_machine: bool) -> bool:
    """Whether `owner` is surely gone, judged by a process at `here`.

    `same_machine` says that the daemon is reached over a local socket, so that every owner runs
    (or ran) under this kernel: then another boot id is proof of death.
    """
    if owner.boot != here.boot:
        return same_machine
    if owner.namespace != here.namespace:
        return False
    return _start_time(owner.pid) != owner.started


async def sweep(engine: Engine) -> tuple[str, ...]:
    """Remove the containers of dead owners; returns their names. Raises EngineUnavailable."""
    here = current_owner()
    removed = []
    for container in await engine.containers({KIT: KIT_NAME}):
        owner = Owner.of(container.labels)
        if owner is not None and is_dead(owner, here, same_machine=engine.local):
            await engine.remove(container.name)
            removed.append(container.name)
    return tuple(removed)
