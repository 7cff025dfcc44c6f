"""A container's whole life: made, ready, one command, gone."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from patchgym.sandbox import Pool, SandboxSpec
from patchgym.sandbox.launch import start_holder, start_sandbox
from patchgym.sandbox.reaper import current_owner
from patchgym.sandbox.supervised import supervise

from .bench import CYCLE, Bench
from .contestants import HOST, WAIT, Child, child
from .environments import Unavailable, home

OURS = "patchgym, in a slot's network"
REFILL = "patchgym: lease, `true`, next one ready"
WARM = "patchgym: lease and `true` alone"
RUNC = "runc run"
RUN_NONE = "docker run --rm, no network"
RUN_BRIDGE = "docker run --rm, bridge"
GONE_LIMIT = 60.0
Contestants = dict[str, Callable[[], Awaitable[float]]]


async def measure(bench: Bench, others: Sequence[Child]) -> None:
    """The quick ones in turn; those that wait ten seconds for `docker stop` side by side."""
    quick = [each for each in others if not each.entry.lazy_stop]
    async with child(HOST, bench.image) as host, own_cycle(bench) as own, own_pool(bench) as pool:
        contestants: Contestants = {OURS: own, REFILL: pool}
        try:
            bundle = await make_bundle(bench.image)
            contestants[RUNC] = lambda: host.run(runc(bundle))
        except Unavailable as reason:
            bench.report.note(RUNC, CYCLE, reason)
        contestants[RUN_NONE] = lambda: host.run(docker_run(bench.image, "none"))
        contestants[RUN_BRIDGE] = lambda: host.run(docker_run(bench.image, "bridge"))
        contestants |= {each.name: partial(whole_life, bench, each) for each in quick}
        await alternate(bench, contestants, bench.scale.cycles)
    async with anyio.create_task_group() as tasks:
        for each in others:
            if each.entry.lazy_stop:
                alone: Contestants = {each.name: partial(whole_life, bench, each)}
                tasks.start_soon(alternate, bench, alone, bench.scale.lazy_cycles)


async def alternate(bench: Bench, contestants: Contestants, rounds: int) -> None:
    """One of each in turn; the first round of several does not count."""
    able, warm_up = dict(contestants), rounds > 2
    for turn in range(rounds + warm_up):
        for name, contestant in tuple(able.items()):
            try:
                seconds = await contestant()
            except Unavailable as reason:
                bench.report.note(name, CYCLE, reason)
                del able[name]
                continue
            if turn or not warm_up:
                bench.report.time(CYCLE, name, seconds)
            if turn >= 3 and seconds * turn > bench.scale.cycle_seconds:
                del able[name]  # the table's count tells


async def whole_life(bench: Bench, contestant: Child) -> float:
    """Start, `true`, close, and whatever then remains until the container does not exist."""
    seconds = await contestant.start() + await contestant.run(["true"]) + await contestant.close()
    started = time.perf_counter()
    container = contestant.made.pop()
    while await bench.engine.inspect(container) is not None:
        if time.perf_counter() - started > GONE_LIMIT:
            contestant.made.append(container)
            raise Unavailable(f"its container was still there after {GONE_LIMIT:.0f} s")
        await anyio.sleep(0.005)
    return seconds + time.perf_counter() - started


@asynccontextmanager
async def own_cycle(bench: Bench) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Create, attach, start, ready, `true`, gone: all in a row, nothing in the background."""
    spec, labels = SandboxSpec(image=bench.image), current_owner().labels()
    supervised = await supervise(bench.engine, spec, bench.image)
    run = f"patchgym-bench-{os.getpid()}"
    holder, _ = await start_holder(
        bench.engine, f"{run}-net", spec, supervised=supervised, labels=labels
    )

    async def once() -> float:
        name = f"{run}-{uuid.uuid4().hex[:8]}"
        started = time.perf_counter()
        sandbox = await start_sandbox(
            bench.engine,
            name,
            spec,
            image=bench.image,
            supervised=supervised,
            network=f"container:{run}-net",
            labels=labels,
        )
        assert (await sandbox.run(["true"], timeout=WAIT)).ok
        await sandbox.aclose()
        if not await bench.engine.gone(name, within=GONE_LIMIT):
            raise Unavailable("its container did not go")
        return time.perf_counter() - started

    try:
        yield once
    finally:
        await anyio.aclose_forcefully(holder)
        await bench.engine.gone(f"{run}-net", within=GONE_LIMIT)


@asynccontextmanager
async def own_pool(bench: Bench) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """As callers see it: a lease from a pool of one, and the time until the next is ready."""
    async with Pool(SandboxSpec(image=bench.image), size=1) as pool:

        async def ready() -> None:
            while pool.statistics().ready < 1:  # noqa: ASYNC110
                await anyio.sleep(0.001)

        async def once() -> float:
            await ready()
            started = time.perf_counter()
            async with pool.lease(timeout=WAIT) as sandbox:
                assert (await sandbox.run(["true"], timeout=WAIT)).ok
            bench.report.time(CYCLE, WARM, time.perf_counter() - started)
            await ready()
            return time.perf_counter() - started

        yield once


def docker_run(image: str, network: str) -> list[str]:
    """The CLI's way to do it."""
    return ["docker", "run", "--rm", "--network", network, image, "true"]


def runc(bundle: Path) -> list[str]:
    """The floor: no daemon, no image, no layers."""
    return ["runc", "run", "--bundle", str(bundle), f"bench-{uuid.uuid4().hex[:12]}"]


async def make_bundle(image: str) -> Path:
    """The image's files and runc's default configuration, kept in the cache. Raises Unavailable."""
    if shutil.which("runc") is None or os.geteuid() != 0:
        raise Unavailable("runc needs to be installed, and root")
    identity = await output("docker", "image", "inspect", "--format", "{{.Id}}", image)
    bundle = home().with_name("bench-sandbox-bundle") / identity.removeprefix("sha256:")[:12]
    if not (bundle / "config.json").is_file():
        shutil.rmtree(bundle.parent, ignore_errors=True)
        (bundle / "rootfs").mkdir(parents=True)
        made = await output("docker", "create", "--network", "none", image, "true")
        try:
            export = f"docker export {made} | tar -x -C '{bundle / 'rootfs'}'"
            await output("sh", "-c", export)
        finally:
            await output("docker", "rm", "-f", made)
        await output("runc", "spec", "--bundle", str(bundle))
        config = json.loads((bundle / "config.json").read_text())
        config["process"] |= {"terminal": False, "args": ["true"]}
        (bundle / "config.json").write_text(json.dumps(config))
    return bundle


async def output(*words: str) -> str:
    """Of a command that must succeed. Raises Unavailable."""
    done = await anyio.run_process(words, check=False)
    if done.returncode:
        raise Unavailable(f"{words[0]} {words[1]}: {done.stderr.decode().strip()[-120:]}")
    return done.stdout.decode().strip()
