"""A fork bomb, a gigabyte of output, and an owner that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from patchgym.sandbox import Pool, SandboxSpec

from .bench import Bench
from .contestants import CLEAN_UP, WAIT, Ours, ours
from .environments import Unavailable

BOMB = "fork bomb, answer after the limit"
NEXT = "`true` after the fork bomb"
GROWTH = "our memory for 1 GB of output"
INPUT = "CPU of 64 MB into a command, in that of 8 MB"
GONE = "kill -9 of the owner until its 8 containers are gone"
TOUCHED = "containers of another owner touched by that"
INSIDE = "the sandbox's memory for 1 GB of output"
PIDS = 128
GONE_LIMIT = 30.0
CHILD = Path(__file__).with_name("child.py")


async def measure(bench: Bench) -> None:
    """All four."""
    await fork_bomb(bench)
    await output(bench)
    await large_input(bench)
    async with ours(bench.image) as bystander:
        for _ in range(bench.scale.repeats):
            await killed_owner(bench, bystander)


async def fork_bomb(bench: Bench) -> None:
    """Contained by the limit of processes."""
    limit = bench.scale.limit
    async with Pool(SandboxSpec(image=bench.image, pids=PIDS), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            for _ in range(bench.scale.repeats):
                started = time.perf_counter()
                done = await sandbox.run("b() { b | b & }; b; sleep 100", timeout=limit)
                assert done.timed_out
                bench.report.time(BOMB, Ours.name, time.perf_counter() - started - limit)
                bench.report.time(NEXT, Ours.name, await Ours(sandbox).run(["true"]))


async def output(bench: Bench) -> None:
    """Measured in a process that does nothing else."""
    async with start_child("output", bench.image) as (_, facts):
        bench.report.fact(GROWTH, Ours.name, facts["growth"] / 1e6, "MB more at the peak")
        bench.report.fact(INSIDE, Ours.name, facts["inside"] / 1e6, "MB at the peak")
        rate = facts["bytes"] / 1e6 / facts["seconds"]
        bench.report.fact("1 GB of output", Ours.name, rate, "MB per second")


async def large_input(bench: Bench) -> None:
    """Eight times the bytes should cost eight times the work, and not sixty-four."""
    seconds = []
    async with Pool(SandboxSpec(image=bench.image), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            for size in (8 << 20, 64 << 20):
                data = bytes(size)
                done = [
                    await sandbox.run("cat > /dev/null", timeout=WAIT, stdin=data)
                    for _ in range(bench.scale.repeats)
                ]
                seconds.append(min(result.cpu_seconds for result in done))
    bench.report.fact(INPUT, Ours.name, seconds[1] / seconds[0], "times")


async def killed_owner(bench: Bench, bystander: Ours) -> None:
    """Another process with a pool, one of its leases in mid command, is killed."""
    mine = {"patchgym.owner.pid": str(os.getpid())}
    others = {each.name for each in await bench.engine.containers(mine)}
    async with start_child("owner", bench.image) as (process, facts):
        labels = {"patchgym.owner.pid": str(process.pid)}
        before = await bench.engine.containers(labels)
        if len(before) < facts["containers"]:
            raise Unavailable(f"the owner has {len(before)} containers")
        process.send_signal(signal.SIGKILL)
        started = time.perf_counter()
        while await bench.engine.containers(labels):
            if time.perf_counter() - started > GONE_LIMIT:
                break
            await anyio.sleep(0.005)
        bench.report.time(GONE, Ours.name, time.perf_counter() - started)
    left = {each.name for each in await bench.engine.containers(mine)}
    await bystander.run(["true"])
    touched = max(len(others - left), bench.report.value(TOUCHED, Ours.name) or 0)
    bench.report.fact(TOUCHED, Ours.name, touched, f"of {len(others)}")


@asynccontextmanager
async def start_child(
    what: str, image: str
) -> AsyncIterator[tuple[anyio.abc.Process, dict[str, float]]]:
    """`child.py`, once it has said its line."""
    command = [sys.executable, str(CHILD), what, image]
    process = await anyio.open_process(command, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        with anyio.fail_after(WAIT):
            answers = BufferedByteReceiveStream(process.stdout)
            yield process, json.loads(await answers.receive_until(b"\n", 65536))
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLEAN_UP):
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            await process.aclose()
