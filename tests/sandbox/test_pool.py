"""The pool on a real daemon: warm, fair, bounded, and nothing left behind, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from patchgym.sandbox import (
    Engine,
    EngineUnavailable,
    ImageError,
    LeaseTimeout,
    Pool,
    SandboxLost,
    SandboxSpec,
    SandboxUnavailable,
    SandboxUsageError,
)
from patchgym.sandbox.pool_core import Core, Prepare, Waiter

WAIT = 120.0

OWNER = """
import anyio, sys
from patchgym.sandbox import Pool, SandboxSpec

async def main():
    async with Pool(SandboxSpec(image=sys.argv[1]), size=2) as pool:
        async with pool.lease(timeout=120) as sandbox:
            while pool.statistics().ready < 1:
                await anyio.sleep(0.01)
            async def busy():
                await sandbox.run("sleep 600", timeout=600)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(busy)
                await anyio.wait_all_tasks_blocked()
                print(pool._id, flush=True)

anyio.run(main)
"""


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """A daemon's client of our own."""
    engine = Engine()
    yield engine
    engine.close()


async def names(engine: Engine, pool_id: str) -> list[str]:
    """The containers of a pool that exist."""
    found = await engine.containers({"patchgym.kit": "sandbox"})
    return [each.name for each in found if each.name.startswith(f"patchgym-{pool_id}-")]


async def until_ready(pool: Pool) -> None:
    """Wait for the pool to be warm, without a lease."""
    with anyio.fail_after(WAIT):
        while pool.statistics().ready < 1:  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def until_gone(engine: Engine, pool_id: str) -> None:
    """Wait for the daemon to have removed what is going by itself."""
    with anyio.fail_after(WAIT):
        while await names(engine, pool_id):  # noqa: ASYNC110
            await anyio.sleep(0.1)


@pytest.mark.docker
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_leases_are_fresh_and_nothing_remains(
    spec: SandboxSpec, engine: Engine, anyio_backend: str
) -> None:
    async with Pool(spec, size=2, engine=engine) as pool:
        seen = set()
        for _ in range(3):
            async with pool.lease(timeout=WAIT) as sandbox:
                seen.add(sandbox.name)
                done = await sandbox.run("ls -A . /tmp ~ /dev/shm", timeout=20)
                assert done.stdout.text().split() == [".:", "/dev/shm:", "/home/agent:", "/tmp:"]
                await sandbox.run("touch a /tmp/b ~/c /dev/shm/d; sleep 600 &", timeout=20)
        assert len(seen) == 3
        statistics = pool.statistics()
        assert (statistics.size, statistics.leases, statistics.failures) == (2, 3, 0)
        assert statistics.ready + statistics.making == 2
    assert await names(engine, pool._id) == []


@pytest.mark.docker
async def test_the_queue_is_fair_and_names_its_culprit(spec: SandboxSpec, engine: Engine) -> None:
    order: list[int] = []

    async def caller(pool: Pool, number: int) -> None:
        async with pool.lease(timeout=WAIT):
            order.append(number)

    async with Pool(spec, size=1, engine=engine) as pool:
        async with anyio.create_task_group() as tasks:
            async with pool.lease(timeout=WAIT, borrower="rollout 7"):
                for number in range(3):
                    tasks.start_soon(caller, pool, number)
                    await anyio.wait_all_tasks_blocked()
                with pytest.raises(LeaseTimeout, match="1 leased, longest lease .* by rollout 7"):
                    async with pool.lease(timeout=0.05):
                        pass
                assert pool.statistics().waiting == 3
    assert order == [0, 1, 2]


@pytest.mark.docker
async def test_cancelled_leases_leak_nothing(spec: SandboxSpec, engine: Engine) -> None:
    async with Pool(spec, size=1, engine=engine) as pool:
        with anyio.move_on_after(0.01):  # while its container is being made
            async with pool.lease(timeout=WAIT):
                pass
        async with pool.lease(timeout=WAIT):
            with anyio.move_on_after(0.01):  # in the queue
                async with pool.lease(timeout=WAIT):
                    pass
        with anyio.CancelScope() as scope:  # in the lease, in a command
            async with pool.lease(timeout=WAIT) as sandbox, anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: sandbox.run("sleep 600", timeout=600))
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        async with pool.lease(timeout=WAIT) as sandbox:
            assert (await sandbox.run("true", timeout=20)).ok
        assert pool.statistics().leased == 0
    assert await names(engine, pool._id) == []


@pytest.mark.docker
async def test_exit_in_the_middle_of_everything(spec: SandboxSpec, engine: Engine) -> None:
    pool = Pool(spec, size=3, engine=engine)
    with pytest.raises(KeyError, match="mine"):  # the caller's own exception comes out as it is
        async with pool:
            raise KeyError("mine")
    assert await names(engine, pool._id) == []
    pool = Pool(spec, size=2, engine=engine)
    with anyio.move_on_after(0.5) as scope:
        async with pool:
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert await names(engine, pool._id) == []
    with pytest.raises(EngineUnavailable, match="closed"):
        async with pool.lease(timeout=1):
            pass


@pytest.mark.docker
async def test_a_sandbox_or_a_holder_that_died_is_replaced(
    spec: SandboxSpec, engine: Engine
) -> None:
    async with Pool(spec, size=1, engine=engine) as pool:
        async with pool.lease(timeout=WAIT):
            pass
        await until_ready(pool)
        for name in await names(engine, pool._id):  # as when the daemon is restarted
            await engine.remove(name)
            await engine.gone(name, within=20)
        async with pool.lease(timeout=WAIT) as sandbox:
            assert (await sandbox.run("echo fine", timeout=20)).stdout.text() == "fine\n"
        assert pool.statistics().failures >= 1


@pytest.mark.docker
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_containers_die_with_their_owner(
    docker_image: str, engine: Engine, how: signal.Signals
) -> None:
    owner = await anyio.open_process([sys.executable, "-c", OWNER, docker_image])
    assert owner.stdout is not None
    pool_id = (await owner.stdout.receive()).decode().strip()
    assert len(await names(engine, pool_id)) == 4  # two slots: a holder and a sandbox each
    owner.send_signal(how)
    await owner.wait()
    await until_gone(engine, pool_id)
    await owner.aclose()


@pytest.mark.docker
async def test_network_when_asked_for(docker_image: str) -> None:
    async with Pool(SandboxSpec(image=docker_image, network="bridge"), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            done = await sandbox.run("cat /proc/net/dev", timeout=20)
            assert "eth0:" in done.stdout.text()


@pytest.mark.docker
async def test_another_owners_container_of_our_name_is_left_alone(
    spec: SandboxSpec, engine: Engine
) -> None:
    pool = Pool(spec, size=1, engine=engine)
    taken = f"patchgym-{pool._id}-0-run1"
    config = {"Image": spec.image, "Cmd": ["cat"], "OpenStdin": True, "Labels": {}}
    stream, _ = await engine.launch(taken, config)
    try:
        async with pool, pool.lease(timeout=WAIT) as sandbox:  # under the next name
            assert (await sandbox.run("true", timeout=20)).ok
            assert "already in use" in str(pool.statistics().last_error)
        found = await engine.inspect(taken)
        assert found is not None and found["State"]["Running"]
    finally:
        await stream.aclose()
        await engine.remove(taken)


@pytest.mark.docker
async def test_more_than_the_disk_holds_is_told(pool: Pool, tmp_path: Path) -> None:
    async with pool.lease(timeout=WAIT) as sandbox:
        big = tmp_path / "big"
        big.write_bytes(b"\0" * (40 << 20))
        with pytest.raises(SandboxUsageError, match="its disk is full .32 MiB"):
            await sandbox.upload(big)
        with pytest.raises(SandboxUsageError, match="No space left on device"):
            await sandbox.write("/tmp/big", b"\0" * (40 << 20))
        with pytest.raises(SandboxUsageError, match="Read-only file system"):
            await sandbox.write("../../etc/big", b"")
        assert (await sandbox.run("echo fine", timeout=20)).ok


@pytest.mark.docker
async def test_errors_are_told_at_once(spec: SandboxSpec, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no local image patchgym/none:none"):
        async with Pool(SandboxSpec(image="patchgym/none:none"), size=1):
            pass
    nowhere = Engine(f"unix://{tmp_path}/none.sock")
    with pytest.raises(EngineUnavailable, match="no Docker daemon at"):
        async with Pool(spec, size=1, engine=nowhere):
            pass
    nowhere.close()
    strange = SandboxSpec(image=spec.image, runtime="no-such-runtime")
    async with Pool(strange, size=1) as pool:
        with pytest.raises(SandboxUnavailable, match="no-such-runtime"):
            async with pool.lease(timeout=WAIT):
                pass
        with pytest.raises(LeaseTimeout, match="last error: .*no-such-runtime"):
            async with pool.lease(timeout=0.05):
                pass


def test_core_decides_without_io() -> None:
    core = Core(2, "image")
    assert core.start(0.0) == [Prepare(core.slots[0]), Prepare(core.slots[1])]
    trouble = SandboxUnavailable("no room")
    assert core.failed(core.slots[0], trouble, 1.0) == [Prepare(core.slots[0], 0.2)]
    assert core.failed(core.slots[0], trouble, 2.0) == [Prepare(core.slots[0], 0.4)]
    assert core.culprit(2.0) == "of 2 slots 1 making, 1 broken, last error: no room"
    assert core.statistics([]).last_error == "no room"


async def test_core_wakes_waiters_whom_waiting_does_not_help() -> None:
    core = Core(1, "image")
    core.start(0.0)
    first, second = Waiter(0.0, "", "image"), Waiter(0.0, "", "image")
    core.request(first, 0.0)
    core.failed(core.slots[0], SandboxUnavailable("perhaps later"), 1.0)
    assert not first.woken.is_set()
    core.request(second, 1.0)
    core.withdraw(first, 1.0)
    core.failed(core.slots[0], ImageError("gone"), 2.0)
    assert second.error is not None and not first.woken.is_set()


def test_importing_is_cheap() -> None:
    program = "import sys, patchgym.sandbox; print('docker' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


async def test_a_lost_stream_is_an_error() -> None:
    """Bytes that are no frames end in SandboxLost, not in a hang."""
    import socket

    from patchgym.sandbox.link import Link

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    link = Link("x", await anyio.abc.UNIXSocketStream.from_socket(ours))
    theirs.sendall(b"\x02\0\0\0\0\0\0\x05boom!")
    theirs.close()
    with pytest.raises(SandboxLost, match="boom!"):
        await link.ask(b"G", [], b"F")
    await link.aclose()
