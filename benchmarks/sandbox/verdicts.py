"""What a rollout's verdict costs: lease, checkout, patch, tests, release."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import anyio

from patchgym.sandbox import Pool, SandboxSpec, run_tests

from .bench import Bench
from .contestants import WAIT

TEST = "from calc import add\n\n\ndef test_a():\n    assert add(2, 3) == 5\n"
CALC = "def add(a, b):\n    return a - b\n"
PATCH = b"""--- a/calc.py
+++ b/calc.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
VERDICT = "lease, checkout, patch, one test, release"


def busy_seconds() -> float:
    """CPU seconds that the machine has used since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    idle = int(fields[3]) + int(fields[4])
    return (sum(map(int, fields[:8])) - idle) / os.sysconf("SC_CLK_TCK")


async def measure(bench: Bench) -> None:
    """Wall-clock and whole-machine CPU seconds of each; the latter need an idle machine."""
    rounds = max(bench.scale.rounds // 10, 2)
    with tempfile.TemporaryDirectory() as folder:
        await make_repository(Path(folder))
        async with Pool(SandboxSpec(image=bench.image), size=2) as pool:
            await one(pool, Path(folder))
            await anyio.sleep(1)
            cpu, wall = busy_seconds(), time.perf_counter()
            for _ in range(rounds):
                await one(pool, Path(folder))
            wall = time.perf_counter() - wall
            await anyio.sleep(1)
            cpu = busy_seconds() - cpu
    bench.report.fact(VERDICT, "wall clock", wall / rounds, "s")
    bench.report.fact(VERDICT, "CPU of the whole machine", cpu / rounds, "s")


async def make_repository(root: Path) -> None:
    """One commit."""
    (root / "calc.py").write_text(CALC)
    (root / "test_calc.py").write_text(TEST)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
        await anyio.run_process(["git", *identity, *words], cwd=root)


async def one(pool: Pool, repository: Path) -> None:
    """A verdict."""
    async with pool.lease(timeout=WAIT) as sandbox:
        await sandbox.checkout(repository, "HEAD")
        await sandbox.apply_patch(PATCH)
        tests = ["test_calc.py::test_a"]
        report = await run_tests(sandbox, test_ids=tests, timeout=60)
        assert report.all_passed(tests), report
