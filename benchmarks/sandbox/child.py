"""An owner of sandboxes in a process of its own: `child.py owner|output IMAGE`.

Says one line of JSON. `owner` then waits to be killed; `output` ends.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import anyio

from patchgym.sandbox import Pool, SandboxSpec

SLOTS = 4
BYTES = 1_000_000_000
WAIT = 120.0


def memory(name: str) -> int:
    """Bytes of this process: VmRSS (now) or VmHWM (the most so far)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise LookupError(name)


async def owner(image: str) -> None:
    """A full pool, with one lease in mid command."""
    async with Pool(SandboxSpec(image=image), size=SLOTS) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            await sandbox.start(["sleep", "100"])
            while pool.statistics().ready < SLOTS - 1:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            print(json.dumps({"containers": 2 * SLOTS}), flush=True)
            await anyio.sleep_forever()


async def output(image: str) -> None:
    """A command that prints a gigabyte."""
    async with Pool(SandboxSpec(image=image), size=1) as pool:
        async with pool.lease(timeout=WAIT) as sandbox:
            await sandbox.run(["true"], timeout=WAIT)
            before, started = memory("VmRSS"), time.perf_counter()
            words = ["head", "-c", str(BYTES), "/dev/zero"]
            done = await sandbox.run(words, timeout=WAIT)
            kept = len(done.stdout.head) + len(done.stdout.tail)
            facts = {
                "growth": memory("VmHWM") - before,
                "inside": done.peak_memory or 0,
                "bytes": kept + done.stdout.dropped,
                "seconds": time.perf_counter() - started,
            }
            assert done.ok and facts["bytes"] == BYTES
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    anyio.run({"owner": owner, "output": output}[sys.argv[1]], sys.argv[2])
