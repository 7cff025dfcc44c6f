"""How many leases a second a pool sustains, and how long callers wait at 80% of that."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import anyio

from patchgym.sandbox import Pool, SandboxSpec

from .bench import ACQUIRE, ACQUIRE_BURSTY, RECYCLING, Bench
from .contestants import WAIT, Ours

SLOTS = 8
SHARE = 0.8


async def measure(bench: Bench) -> None:
    """The rate first; the arrivals follow from it."""
    async with Pool(SandboxSpec(image=bench.image), size=SLOTS) as pool:
        await full(pool)
        rate = await recycling(pool, bench.scale.recycling)
        bench.report.fact(RECYCLING, Ours.name, rate, f"per second, {SLOTS} slots")
        gap = 1 / (SHARE * rate)
        ways: dict[str, Callable[[], float]] = {
            ACQUIRE: lambda: gap,
            ACQUIRE_BURSTY: lambda: random.expovariate(1 / gap),
        }
        for name, pause in ways.items():
            await full(pool)
            await arrivals(bench, pool, name, pause)


async def full(pool: Pool) -> None:
    """Wait until all slots are warm."""
    with anyio.fail_after(WAIT):
        while pool.statistics().ready < SLOTS:  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def recycling(pool: Pool, seconds: float) -> float:
    """Leases a second when all slots are always wanted; those that were warm don't count."""
    given: list[float] = []
    deadline = time.perf_counter() + seconds

    async def borrower() -> None:
        while time.perf_counter() < deadline:
            async with pool.lease(timeout=WAIT) as sandbox:
                assert (await sandbox.run(["true"], timeout=WAIT)).ok
            given.append(time.perf_counter())

    async with anyio.create_task_group() as tasks:
        for _ in range(SLOTS):
            tasks.start_soon(borrower)
    given.sort()
    counted = given[SLOTS:]
    return len(counted) / (counted[-1] - given[SLOTS - 1])


async def arrivals(bench: Bench, pool: Pool, name: str, pause: Callable[[], float]) -> None:
    """Callers who come one by one, whether or not those before have been served."""

    async def caller() -> None:
        started = time.perf_counter()
        async with pool.lease(timeout=WAIT) as sandbox:
            bench.report.time(name, Ours.name, time.perf_counter() - started)
            assert (await sandbox.run(["true"], timeout=WAIT)).ok

    next_one = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(bench.scale.arrivals):
            tasks.start_soon(caller)
            next_one += pause()
            await anyio.sleep(max(next_one - time.perf_counter(), 0))
