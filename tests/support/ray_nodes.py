"""A Ray cluster of several nodes on this machine; each can be stopped, frozen or killed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

RAY = str(Path(sys.executable).parent / "ray")
STARTED = 90.0  # seconds for a node to join
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "10000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_worker_niceness": "0",
}
"""A node that is gone is missed within seconds, and not within half a minute; and hosts run at the
priority of everything else, where Ray would have them yield to it."""


@dataclass
class RayNode:
    """One raylet, and what it started, in a process group of their own."""

    process: subprocess.Popen[bytes]
    folder: Path

    def signal(self, number: int) -> None:
        """To the whole node."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def pids(self) -> list[int]:
        """Of the node's processes."""
        return _tree(self.process.pid)

    def kill(self) -> None:
        """As a power cut would."""
        self.signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class RayNodes:
    """A head without sandboxes and nodes with them."""

    address: str
    folder: Path
    environment: Mapping[str, str]
    nodes: list[RayNode] = field(default_factory=list)

    def add(
        self,
        resources: Mapping[str, float] | None = None,
        *,
        before: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> RayNode:
        """Start a node; `before` are words in front of its command (`ip netns exec NAME`), `more`
        come after it; `environment` goes over that of the others."""
        declared = {"sandbox_host": 1, "reward_host": 1} if resources is None else resources
        words = ["--address", self.address, "--resources", json.dumps(declared), "--num-cpus=4"]
        node = _start(
            [*before, RAY, "start", *words, *more],
            self.folder,
            {**self.environment, **(environment or {})},
        )
        self.nodes.append(node)
        return node


@contextmanager
def ray_nodes(count: int, *, address: str = "127.0.0.1") -> Iterator[RayNodes]:
    """A head that others reach at `address`, and `count` nodes; all of it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pg-ray-"))  # short: sockets' names have a limit
    environment = {**os.environ, **ENVIRONMENT}
    for name, value in ENVIRONMENT.items():
        os.environ[name] = value  # the driver's side
    port = _free_port()
    words = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    if address != "127.0.0.1":
        words.append(f"--node-ip-address={address}")
    head = _start([RAY, "start", *words], folder, environment)
    cluster = RayNodes(f"{address}:{port}", folder, environment, [head])
    try:
        for _ in range(count):
            cluster.add()
        yield cluster
    finally:
        for node in reversed(cluster.nodes):
            node.signal(signal.SIGCONT)
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)


async def until(condition: Callable[[], bool], within: float = 240.0) -> None:
    """Wait for something to become true."""
    with anyio.fail_after(within):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.1)


def _start(words: list[str], folder: Path, environment: Mapping[str, str]) -> RayNode:
    """Start a node and wait until it says that it runs; it may lose a race for a port."""
    command = [*words, "--block", "--disable-usage-stats", "--object-store-memory=80000000"]
    if "--head" in words:
        command.append(f"--temp-dir={folder}")
    said = ""
    for _ in range(3):
        log = folder / f"{secrets.token_hex(4)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        node = RayNode(process, folder)
        deadline = time.monotonic() + STARTED
        while process.poll() is None and time.monotonic() < deadline:
            said = log.read_text(errors="replace")
            if "Ray runtime started" in said:
                return node
            time.sleep(0.1)
        node.kill()
    raise RuntimeError(f"{command}: {said[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it, the youngest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[::-1]
