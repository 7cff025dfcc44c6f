"""A node behind a cable that is pulled: a network namespace of its own, joined by a veth pair."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from docker_hosts import need
from ray_nodes import RayNodes, ray_nodes, until

from patchgym.sandbox import SandboxLost
from patchgym.sandbox.conformance.backends import spec as small
from patchgym.sandbox.ray import RayPool

pytestmark = [pytest.mark.docker, pytest.mark.slow]
WAIT = 120.0


class Cable:
    """Between this machine (10.213.x.1) and a namespace (10.213.x.2)."""

    def __init__(self) -> None:
        self.name = f"pg{secrets.token_hex(3)}"
        subnet = f"10.213.{os.getpid() % 250}"
        self.here, self.there = f"{subnet}.1", f"{subnet}.2"
        self.ip = need("ip", "iproute2")
        self._run("netns", "add", self.name)
        self._run(
            "link", "add", self.name, "type", "veth", "peer", "name", "up0", "netns", self.name
        )
        self._run("addr", "add", f"{self.here}/24", "dev", self.name)
        self._run("link", "set", self.name, "up")
        self._run("-n", self.name, "addr", "add", f"{self.there}/24", "dev", "up0")
        self._run("-n", self.name, "link", "set", "up0", "up")
        self._run("-n", self.name, "link", "set", "lo", "up")

    def pull(self) -> None:
        """Nothing passes any more."""
        self._run("link", "set", self.name, "down")

    def plug(self) -> None:
        """It does again."""
        self._run("link", "set", self.name, "up")

    def remove(self) -> None:
        """The namespace, and the pair with it."""
        subprocess.run([self.ip, "netns", "del", self.name], check=False)

    def _run(self, *words: str) -> None:
        subprocess.run([self.ip, *words], check=True)


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Needs root, as everything with namespaces does."""
    cable = Cable()
    try:
        yield cable
    finally:
        cable.remove()


@pytest.fixture
def parted(cable: Cable) -> Iterator[RayNodes]:
    """A head and a node here, and a node at the other end of the cable."""
    with ray_nodes(1, address=cable.here) as nodes:
        nodes.add(
            before=(cable.ip, "netns", "exec", cable.name),
            more=(f"--node-ip-address={cable.there}",),
        )
        yield nodes


def is_there(container: str) -> bool:
    """Whether a container of this name exists."""
    docker = shutil.which("docker") or "docker"
    words = [docker, "ps", "-aq", "--filter", f"name={container}"]
    return bool(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())


async def test_a_cut_network_is_typed_and_nothing_leaks_on_the_far_side(
    parted: RayNodes, cable: Cable, docker_image: str
) -> None:
    async with RayPool(small(docker_image), size=2, address=parted.address, silence=8.0) as pool:
        await until(lambda: len(pool.hosts) == 2)
        async with pool.lease(timeout=WAIT) as one, pool.lease(timeout=WAIT) as other:
            far_pids = {str(pid) for pid in parted.nodes[-1].pids()}
            far, near = (one, other) if one.name.split("-")[1] in far_pids else (other, one)
            assert far.name.split("-")[1] in far_pids
            cable.pull()
            with pytest.raises(SandboxLost, match=f"host {cable.there}"):
                await far.run("sleep 100", timeout=100)
            assert (await near.run("echo here", timeout=10)).ok
            await until(lambda: not is_there(far.name))  # the far side gave it back by itself
            await until(lambda: len(pool.hosts) == 1)
        cable.plug()
        async with pool.lease(timeout=WAIT) as again:
            assert (await again.run("echo goes on", timeout=10)).ok
