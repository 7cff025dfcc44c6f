"""Docker hosts behind other doors: TLS, ssh, Podman; several at once, and one that is lost."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from docker_hosts import podman, ssh_door, tls_door, unix_door

from patchgym.sandbox import (
    Endpoint,
    Engine,
    EngineUnavailable,
    Pool,
    SandboxLost,
    SandboxSpec,
    SandboxUsageError,
)
from patchgym.sandbox.pool_core import Core, Prepare, Waiter

WAIT = 120.0
pytestmark = pytest.mark.docker


async def exercise(pool: Pool) -> None:
    """A lease that runs, times out, and carries a lot."""
    async with pool.lease(timeout=WAIT) as sandbox:
        blob = os.urandom(3_000_000)
        await sandbox.write("blob", blob)
        assert await sandbox.read("blob") == blob
        done = await sandbox.run("sleep 77 & setsid sleep 78", timeout=0.5)
        assert done.timed_out and done.killed >= 2
        assert (await sandbox.run("cat /proc/[0-9]*/cmdline", timeout=20)).ok
    assert pool.statistics().failures == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_tls(spec: SandboxSpec, tmp_path: Path, anyio_backend: str) -> None:
    with tls_door(tmp_path) as (url, certificates):
        engine = Engine(url, certificates=certificates)
        async with Pool(spec, size=1, hosts=[engine]) as pool:
            await exercise(pool)
        engine.close()
        stranger = Engine(url)
        with pytest.raises(EngineUnavailable):
            await stranger.ping()
        stranger.close()


async def test_ssh(spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ssh_door(tmp_path) as (url, options):
        wrapper = tmp_path / "bin" / "ssh"
        wrapper.parent.mkdir()
        flags = " ".join(f"-o {option}" for option in options)
        wrapper.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F /dev/null {flags} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        async with Pool(spec, size=1, hosts=[url]) as pool:
            await exercise(pool)
    closed = Engine(url)
    with pytest.raises(EngineUnavailable, match="no ssh tunnel to ssh://"):
        await closed.ping()
    closed.close()


async def test_podman(spec: SandboxSpec, tmp_path: Path) -> None:
    with podman(tmp_path, spec.image) as (url, image):
        async with Pool(replace(spec, image=image), size=1, hosts=[url]) as pool:
            await exercise(pool)
            async with pool.lease(timeout=WAIT) as sandbox:
                done = await sandbox.run("id -u; touch a ~/b /tmp/c; ls /workspace", timeout=20)
                assert done.stdout.text().split() == ["1000", "a"] and done.ok
                grown = await sandbox.run("head -c 90000000 /dev/zero > big", timeout=30)
                assert "disk" in grown.limits_hit
        engine = Engine(url)
        assert await engine.is_podman()
        assert await engine.containers({"patchgym.kit": "sandbox"}) == ()
        engine.close()


async def test_a_lost_host_takes_only_its_own_leases(spec: SandboxSpec, tmp_path: Path) -> None:
    here = Engine()
    with unix_door(tmp_path) as (url, door):
        async with Pool(spec, size=4, hosts=[here, url]) as pool:
            with anyio.fail_after(WAIT):
                while pool.statistics().ready < 4:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            async with pool.lease(timeout=WAIT) as first, pool.lease(timeout=WAIT) as second:
                # least loaded: one lease on each host
                assert [each.leased for each in pool.statistics().hosts] == [1, 1]
                door.shut()
                results: list[object] = []
                for sandbox in (first, second):
                    try:
                        results.append((await sandbox.run("echo fine", timeout=20)).ok)
                    except SandboxLost:
                        results.append("lost")
                assert sorted(map(str, results)) == ["True", "lost"]
            for _ in range(6):  # the other host goes on serving
                async with pool.lease(timeout=WAIT) as sandbox:
                    assert (await sandbox.run("true", timeout=20)).ok
            statistics = pool.statistics()
            assert statistics.hosts[1].failures > 0 and statistics.hosts[0].failures == 0
            assert statistics.last_error is not None and "door.sock" in statistics.last_error
    with pytest.raises(EngineUnavailable):
        async with Pool(spec, size=1, hosts=[url]):
            pass
    for container in await here.containers({"patchgym.kit": "sandbox"}):
        if container.name.startswith(f"patchgym-{pool._id}-"):  # its stream ended with the door
            assert await here.gone(container.name, within=120)
    here.close()


async def test_a_host_that_is_down_at_the_start_is_left_out(
    spec: SandboxSpec, tmp_path: Path
) -> None:
    async with Pool(spec, size=2, hosts=[Engine(), f"unix://{tmp_path}/no.sock"]) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            assert (await sandbox.run("true", timeout=20)).ok


def test_impossible_hosts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxUsageError, match="unix://, tcp:// or ssh://"):
        Endpoint(url="http://x")
    with pytest.raises(SandboxUsageError, match="no ca.pem in"):
        Endpoint(url="tcp://x:1", certificates=tmp_path)


async def test_the_breaker_lets_one_slot_try() -> None:
    core = Core(4, "image", hosts=2)
    core.start(0.0)
    down = EngineUnavailable("down")
    bad = [slot for slot in core.slots if slot.host == 1]
    for _ in range(2):
        for slot in bad:
            assert core.failed(slot, down, 1.0) == [Prepare(slot, core._pause(slot))]
            assert core.retrying(slot, 2.0) is None or core.host_failures[1] >= 3
    assert core.host_failures == [0, 4]
    for slot in bad:
        slot.state = "broken"
    assert core.retrying(bad[0], 3.0) is None  # the trial
    waiting = core.retrying(bad[1], 3.0)
    assert waiting is not None and waiting[0] == Prepare(bad[1], core._pause(bad[1]))


async def test_slots_follow_what_is_asked_for_and_what_is_expected() -> None:
    core = Core(2, "a")
    core.start(0.0)
    for slot in core.slots:
        core.prepared(slot, None, 0.0)  # type: ignore[arg-type]
    waiter = Waiter(1.0, "", "b")
    (work,) = core.request(waiter, 1.0)
    assert isinstance(work, Prepare) and work.slot.source == "b" and not waiter.woken.is_set()
    assert core.request(Waiter(1.0, "", "a"), 1.0) == []  # the other slot serves it
    core.prepared(work.slot, None, 2.0)  # type: ignore[arg-type]
    assert waiter.slot is work.slot
    core.expect(["c"], 3.0)
    (_, prepare) = [None, *core.returned(work.slot, 3.0)]
    assert isinstance(prepare, Prepare) and prepare.slot.source == "c"
    core.prepared(prepare.slot, None, 4.0)  # type: ignore[arg-type]
    core.expect(["c", "a"], 4.0)  # what both slots hold
    (work,) = core.request(Waiter(5.0, "", "d"), 5.0)  # who waits comes first
    assert isinstance(work, Prepare) and work.slot.source == "d"
