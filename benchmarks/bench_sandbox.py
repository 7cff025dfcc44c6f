"""Sandboxes against Docker's own ways, side by side in one run: exec round trips, leases, cycles.

    python benchmarks/bench_sandbox.py [--rounds N] [--image TAG]

Alternates the contestants, so that a busy machine slows both; reports medians and their quartiles.
CPU seconds are the whole machine's (/proc/stat), so they mean something on an idle machine only.
The last line is `RESULT ` and one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import anyio
import anyio.to_thread
import docker

from patchgym.sandbox import Engine, Pool, SandboxSpec, ensure_base, run_tests

TEST = "from calc import add\n\n\ndef test_a():\n    assert add(2, 3) == 5\n"
CALC = "def add(a, b):\n    return a - b\n"
PATCH = b"""--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
Times = dict[str, list[float]]
Contestants = dict[str, Callable[[], Awaitable[object]]]


def busy_seconds() -> float:
    """CPU seconds that the machine has used since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


async def alternate(contestants: Contestants, rounds: int) -> Times:
    """Wall-clock milliseconds of each contestant, one of each in turn."""
    times: Times = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            started = time.perf_counter()
            await contestant()
            times[name].append((time.perf_counter() - started) * 1e3)
    return times


async def exec_round_trips(image: str, rounds: int) -> Times:
    """`true` in a container that runs already."""
    client = docker.from_env()
    container = client.containers.run(image, ["sleep", "600"], detach=True, network_mode="none")
    try:
        async with Pool(SandboxSpec(image=image), size=1) as pool:
            async with pool.lease(timeout=120) as sandbox:

                async def ours() -> None:
                    assert (await sandbox.run(["true"], timeout=30)).ok

                async def theirs() -> None:
                    done = await anyio.to_thread.run_sync(container.exec_run, ["true"])
                    assert done.exit_code == 0

                return await alternate({"sandbox": ours, "docker_py": theirs}, rounds)
    finally:
        container.remove(force=True)
        client.close()


async def cycles(image: str, rounds: int) -> Times:
    """A fresh container, one command, and the next one ready; `lease_warm` is the caller's part."""
    warm: list[float] = []

    async def docker_run_rm() -> None:
        await anyio.run_process(["docker", "run", "--rm", "--network", "none", image, "true"])

    async with Pool(SandboxSpec(image=image), size=1) as pool:

        async def until_warm() -> None:
            while pool.statistics().ready < 1:  # noqa: ASYNC110
                await anyio.sleep(0.001)

        async def lease_and_refill() -> None:
            started = time.perf_counter()
            async with pool.lease(timeout=120) as sandbox:
                assert (await sandbox.run(["true"], timeout=30)).ok
            warm.append((time.perf_counter() - started) * 1e3)
            await until_warm()

        await until_warm()
        contestants: Contestants = {
            "lease_and_refill": lease_and_refill,
            "docker_run_rm": docker_run_rm,
        }
        return await alternate(contestants, rounds) | {"lease_warm": warm}


async def verdicts(image: str, rounds: int) -> tuple[float, float]:
    """Lease, checkout, patch, tests, release: wall-clock and whole-machine CPU seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "calc.py").write_text(CALC)
        (root / "test_calc.py").write_text(TEST)
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
            await anyio.run_process(["git", *identity, *words], cwd=folder)
        async with Pool(SandboxSpec(image=image), size=2) as pool:

            async def one() -> None:
                async with pool.lease(timeout=120) as sandbox:
                    await sandbox.checkout(root, "HEAD")
                    await sandbox.apply_patch(PATCH)
                    tests = ["test_calc.py::test_a"]
                    report = await run_tests(sandbox, test_ids=tests, timeout=60)
                    assert report.all_passed(tests), report

            await one()
            await anyio.sleep(1)
            cpu, wall = busy_seconds(), time.perf_counter()
            for _ in range(rounds):
                await one()
            wall = time.perf_counter() - wall
            await anyio.sleep(1)
            return wall / rounds, (busy_seconds() - cpu) / rounds


def summary(times: list[float]) -> dict[str, float]:
    """Median and quartiles, milliseconds."""
    low, middle, high = statistics.quantiles(times, n=4)
    return {"p25": round(low, 2), "p50": round(middle, 2), "p75": round(high, 2)}


async def main(arguments: argparse.Namespace) -> None:
    """Run all and print."""
    image = arguments.image or await ensure_base()
    engine = Engine()
    daemon = await engine.ping()
    engine.close()
    spread = {}
    for part in (exec_round_trips, cycles):
        for name, times in (await part(image, arguments.rounds)).items():
            key = f"{part.__name__}.{name}"
            spread[key] = summary(times)
            print(f"{key:32s} {spread[key]} ms", flush=True)
    wall, cpu = await verdicts(image, max(arguments.rounds // 3, 2))
    print(f"verdict: {wall:.3f} s, {cpu:.3f} CPU s of the whole machine", flush=True)

    def ratio(theirs: str, ours: str) -> float:
        return round(spread[theirs]["p50"] / spread[ours]["p50"], 2)

    result = {
        "exec_vs_docker_py": ratio("exec_round_trips.docker_py", "exec_round_trips.sandbox"),
        "cycle_vs_docker_run_rm": ratio("cycles.docker_run_rm", "cycles.lease_and_refill"),
        "warm_lease_vs_docker_run_rm": ratio("cycles.docker_run_rm", "cycles.lease_warm"),
        "verdict_seconds": round(wall, 3),
        "verdict_cpu_seconds": round(cpu, 3),
        "load": os.getloadavg()[0],
        "spread": spread,
        "versions": {
            "docker": daemon, "docker_py": version("docker"), "python": platform.python_version(),
        },
    }  # fmt: skip
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--image", help="default: the base image, built when missing")
    anyio.run(main, parser.parse_args())
