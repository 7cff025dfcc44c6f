"""The pool over a real cluster: the contract, spreading, losses, and what is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest
from ray_nodes import RayNode, RayNodes, until

from patchgym.sandbox import (
    CommandResult,
    EngineUnavailable,
    ImageError,
    LeaseTimeout,
    SandboxLost,
    SandboxSpec,
    SandboxUsageError,
)
from patchgym.sandbox.conformance import CHECKS, Claiming, check
from patchgym.sandbox.conformance.backends import spec as small
from patchgym.sandbox.ray import ClusterError, Hello, RayPool
from patchgym.sandbox.ray import line as line_module

pytestmark = [pytest.mark.docker, pytest.mark.slow]
WAIT = 120.0
PATIENT = 60.0
"""Seconds that a host may be silent in tests: a busy machine is no failure."""


@asynccontextmanager
async def opened(
    cluster: RayNodes, spec: SandboxSpec, size: int, silence: float = PATIENT
) -> AsyncIterator[RayPool]:
    """With both hosts up."""
    async with RayPool(spec, size=size, address=cluster.address, silence=silence) as pool:
        await until(lambda: len(pool.hosts) >= 2)
        yield pool


def start(program: str) -> subprocess.Popen[str]:
    """A Python program of its own."""
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


class Containers:
    """Sandboxes of the cluster's processes, those that have died included."""

    def __init__(self, cluster: RayNodes) -> None:
        self._cluster = cluster
        self._processes: set[str] = set()

    def __call__(self) -> set[str]:
        """Names of those that are there: they begin with the process that made them."""
        self._processes |= {str(pid) for node in self._cluster.nodes for pid in node.pids()}
        words = ["docker", "ps", "-a", "--filter", "label=patchgym.kit", "--format", "{{.Names}}"]
        names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        return {name for name in names if name.split("-")[1] in self._processes}


@pytest.fixture
def containers(cluster: RayNodes) -> Containers:
    """None are left of earlier tests."""
    return Containers(cluster)


def node_of(cluster: RayNodes, pool: RayPool, sandbox: str) -> RayNode:
    """The node whose process made a sandbox: names begin with the process that did."""
    pid = int(sandbox.split("-")[1])
    return next(node for node in cluster.nodes if pid in node.pids())


async def test_the_whole_contract(cluster: RayNodes, docker_image: str) -> None:
    async with RayPool(small(docker_image), size=2, address=cluster.address, hosts=1) as pool:
        found = await check(Claiming(pool))
    assert {each.name: each.reason for each in found.having("failed")} == {}
    assert len(found.having("passed")) == len(CHECKS)


async def test_leases_are_spread_and_nothing_stays(
    cluster: RayNodes, docker_image: str, containers: Containers
) -> None:
    async with opened(cluster, small(docker_image), 4) as pool:
        results: list[CommandResult] = []

        async def use(number: int) -> None:
            async with pool.lease(timeout=WAIT, borrower=f"user {number}") as sandbox:
                results.append(await sandbox.run(f"echo {number}", timeout=10))

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(use, number)
        assert sorted(int(each.stdout.text()) for each in results) == list(range(12))
        statistics = await pool.statistics()
        assert statistics.leases == 12 and len(statistics.hosts) == 2
        assert all(host.failures == 0 for host in statistics.hosts)
        async with pool.lease(timeout=WAIT) as one, pool.lease(timeout=WAIT) as other:
            assert one.name.split("-")[1] != other.name.split("-")[1]  # of different processes
            assert {one.name, other.name} <= containers()
    assert containers() == set()


async def test_a_full_pool_names_its_culprit_and_drains(
    cluster: RayNodes, docker_image: str
) -> None:
    async with opened(cluster, small(docker_image), 2) as pool:
        async with pool.lease(timeout=WAIT), pool.lease(timeout=WAIT):
            with pytest.raises(LeaseTimeout, match=r"no sandbox within 0.2 s: .* 1 of 1 leased"):
                async with pool.lease(timeout=0.2):
                    pass
        name = next(iter(pool.hosts))
        await pool.drain(name)
        async with pool.lease(timeout=WAIT):
            with pytest.raises(LeaseTimeout):
                async with pool.lease(timeout=0.2):
                    pass
        with pytest.raises(SandboxUsageError, match="no host nowhere; there are: "):
            await pool.drain("nowhere")
        await pool.drain()
        with pytest.raises(EngineUnavailable, match="the pool is closed"):
            async with pool.lease(timeout=1):
                pass


async def test_what_waits_is_asked_of_the_autoscaler(cluster: RayNodes, docker_image: str) -> None:
    from ray.experimental.internal_kv import _internal_kv_get

    def asked() -> list[dict[str, float]]:
        """What Ray's autoscaler reads."""
        told = _internal_kv_get(b"autoscaler_resource_request")
        found: list[dict[str, float]] = json.loads(told) if told else []
        return found

    async with RayPool(
        small(docker_image), size=2, address=cluster.address, silence=PATIENT, max_hosts=5
    ) as pool:
        await until(lambda: len(pool.hosts) == 2)
        async with pool.lease(timeout=WAIT), pool.lease(timeout=WAIT):
            async with anyio.create_task_group() as waiting:
                for _ in range(6):
                    waiting.start_soon(take, pool)
                await until(lambda: asked() == [{"sandbox_host": 1}] * 5)
                waiting.cancel_scope.cancel()
        await until(lambda: asked() == [{"sandbox_host": 1}])


async def take(pool: RayPool) -> None:
    """Wait for a sandbox, and keep it."""
    async with pool.lease(timeout=WAIT):
        await anyio.sleep_forever()


async def test_a_killed_actor_comes_up_again_on_its_node(
    cluster: RayNodes, docker_image: str, containers: Containers
) -> None:
    async with opened(cluster, small(docker_image), 2) as pool:
        async with pool.lease(timeout=WAIT) as one:
            assert one.name in containers()
            os.kill(int(one.name.split("-")[1]), signal.SIGKILL)
            with pytest.raises(SandboxLost, match="host "):
                await one.run("sleep 60", timeout=60)
            await until(lambda: len(pool.hosts) == 2)
            await until(lambda: one.name not in containers())
    assert containers() == set()


async def test_a_killed_node_is_typed_and_replaced(
    cluster: RayNodes,
    docker_image: str,
    containers: Containers,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with opened(cluster, small(docker_image), 2) as pool:
        async with pool.lease(timeout=WAIT) as one, pool.lease(timeout=WAIT) as other:
            assert {one.name, other.name} <= containers()
            victim = node_of(cluster, pool, one.name)
            killer = threading.Timer(0.5, victim.kill)
            killer.start()
            with pytest.raises(SandboxLost, match="host "):
                await one.run("sleep 60", timeout=60)
            await anyio.to_thread.run_sync(killer.join)
            assert (await other.run("echo alive", timeout=10)).stdout.text() == "alive\n"
            await until(lambda: len(pool.hosts) == 1)
            await until(lambda: one.name not in containers())
            cluster.add()
            await until(lambda: len(pool.hosts) == 2)
            async with pool.lease(timeout=WAIT) as again:
                assert (await again.run("echo back", timeout=10)).ok
    assert containers() == set()
    assert capfd.readouterr() == ("", "")  # what Ray has to say of it is not for our output


async def test_a_frozen_host_is_lost_and_returns_clean(
    cluster: RayNodes, docker_image: str, containers: Containers
) -> None:
    async with opened(cluster, small(docker_image), 2, silence=8.0) as pool:
        async with pool.lease(timeout=WAIT) as one:
            frozen = node_of(cluster, pool, one.name)
            assert one.name in containers()
            frozen.signal(signal.SIGSTOP)
            try:
                with pytest.raises(SandboxLost, match=r"no word from it for \d+ s|host "):
                    await one.run("sleep 60", timeout=60)
                async with pool.lease(timeout=WAIT) as other:  # the work goes on elsewhere
                    assert other.name.split("-")[1] != one.name.split("-")[1]
            finally:
                frozen.signal(signal.SIGCONT)
            await until(lambda: one.name not in containers())
    await until(lambda: containers() == set())


async def test_a_driver_that_is_killed_leaves_nothing(
    cluster: RayNodes, docker_image: str, containers: Containers
) -> None:
    program = f"""
import anyio
from patchgym.sandbox import SandboxSpec
from patchgym.sandbox.ray import RayPool
async def main():
    spec = SandboxSpec(image={docker_image!r})
    async with RayPool(spec, size=2, address={cluster.address!r}) as pool:
        async with pool.lease(timeout=120) as sandbox:
            print(sandbox.name, flush=True)
            await sandbox.run("sleep 300", timeout=300)
anyio.run(main)
"""
    driver = start(program)
    assert driver.stdout is not None
    name = await anyio.to_thread.run_sync(driver.stdout.readline)
    assert name.strip() in containers()
    driver.kill()
    driver.wait()
    driver.stdout.close()
    await until(lambda: containers() == set())


async def test_wrong_addresses_and_clusters_without_hosts(
    cluster: RayNodes, docker_image: str
) -> None:
    spec = small(docker_image)
    with pytest.raises(ClusterError, match=r"nothing answers at 127.0.0.1:1 .*ray start --head"):
        async with RayPool(spec, size=1, address="127.0.0.1:1"):
            pass
    with pytest.raises(ClusterError, match="'somewhere' is no address of a Ray cluster"):
        async with RayPool(spec, size=1, address="somewhere"):
            pass


async def test_a_node_without_docker_or_image_says_so(cluster: RayNodes, docker_image: str) -> None:
    with pytest.raises(ImageError, match="no local image no/such/image"):
        async with RayPool(small("no/such/image"), size=2, address=cluster.address):
            pass
    nowhere = {"DOCKER_HOST": "unix:///nowhere.sock"}
    node = cluster.add({"dockerless": 1}, environment=nowhere)
    try:
        with pytest.raises(EngineUnavailable, match="nowhere.sock"):
            async with RayPool(
                small(docker_image), size=2, address=cluster.address, resource="dockerless"
            ):
                pass
    finally:
        node.kill()
        cluster.nodes.remove(node)


async def test_another_version_is_refused(
    cluster: RayNodes, docker_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Hello(host="", pid=0, patchgym="9.9", python="3.11")
    monkeypatch.setattr(line_module, "hello", lambda: other)
    with pytest.raises(ClusterError, match="install the same on both"):
        async with RayPool(small(docker_image), size=2, address=cluster.address):
            pass
