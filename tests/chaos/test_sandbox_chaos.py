"""Leases under fire: killed containers, cancelled callers, a restarted daemon; nothing is left.

`make chaos` takes 1,000 leases (PATCHGYM_CHAOS_LEASES); the ordinary tests take a short run of it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from docker_hosts import OwnDaemon, own_daemon

from patchgym.sandbox import Engine, Pool, SandboxError, SandboxSpec

LEASES = int(os.environ.get("PATCHGYM_CHAOS_LEASES", "60"))
WORKERS = 8
KILLED = 0.05
"""Share of leases whose container is killed."""
CANCELLED = 5.0
"""Cancellations a second."""


@dataclass
class Storm:
    """What happens, and what has come of it."""

    daemon: OwnDaemon
    engine: Engine
    outcomes: Counter[str] = field(default_factory=Counter)
    scopes: list[anyio.CancelScope] = field(default_factory=list)
    started: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    async def worker(self, pool: Pool) -> None:
        """Leases in a row; each is right, cancelled, or a typed failure."""
        while self.started < LEASES:
            self.started += 1
            number = self.started
            with anyio.CancelScope() as scope:
                self.scopes.append(scope)
                try:
                    await self.one(pool, number)
                    self.outcomes["right"] += 1
                except SandboxError as error:
                    self.outcomes[type(error).__name__] += 1
            self.scopes.remove(scope)
            self.outcomes["cancelled"] += scope.cancelled_caught

    async def one(self, pool: Pool, number: int) -> None:
        """A lease whose container may be shot."""
        async with pool.lease(timeout=90, borrower=f"lease {number}") as sandbox:
            shot = self.chance.random() < KILLED
            if shot:
                await self.engine.kill(sandbox.name)
            done = await sandbox.run(f"touch mine; echo {number}; ls | wc -l", timeout=30)
            assert done.stdout.text().split() == [str(number), "1"], done
            assert not shot or done.ok

    async def cancellations(self) -> None:
        """Cancel somebody, all the time; on a slow machine not everybody."""
        while True:
            await anyio.sleep(1 / CANCELLED)
            if self.scopes and self.outcomes["cancelled"] <= self.started / 3:
                self.chance.choice(self.scopes).cancel()

    async def restart(self) -> None:
        """One restart of the daemon, in the middle."""
        while self.started < LEASES / 2:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        await anyio.to_thread.run_sync(self.daemon.stop)
        await anyio.to_thread.run_sync(self.daemon.start)
        self.outcomes["restarts"] += 1


@pytest.mark.docker
@pytest.mark.slow
async def test_nothing_is_left_and_every_failure_is_typed(
    spec: SandboxSpec, tmp_path: Path
) -> None:
    with own_daemon(tmp_path, spec.image) as daemon:
        before = daemon.inventory()
        engine = Engine(daemon.url)
        await engine.ping()
        descriptors = len(os.listdir("/proc/self/fd"))
        storm = Storm(daemon, engine)
        async with Pool(spec, size=6, hosts=[daemon.url]) as pool:
            async with anyio.create_task_group() as troubles:
                troubles.start_soon(storm.cancellations)
                troubles.start_soon(storm.restart)
                async with anyio.create_task_group() as workers:
                    for _ in range(WORKERS):
                        workers.start_soon(storm.worker, pool)
                while not storm.outcomes["restarts"]:  # noqa: ASYNC110
                    await anyio.sleep(0.1)
                troubles.cancel_scope.cancel()
            async with pool.lease(timeout=90) as sandbox:  # it has come through
                assert (await sandbox.run("true", timeout=20)).ok
        assert daemon.inventory() == before
        known = {"right", "cancelled", "restarts", "SandboxLost", "EngineUnavailable"}
        known |= {"SandboxUnavailable", "LeaseTimeout"}
        assert set(storm.outcomes) <= known, storm.outcomes
        assert storm.outcomes["right"] > LEASES / 4, (storm.outcomes, pool.statistics())
        engine.close()
        assert len(os.listdir("/proc/self/fd")) <= descriptors
