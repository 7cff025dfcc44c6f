"""What is alive after a timeout, and when the answer comes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

import anyio

from .bench import LATENESS, SURVIVORS, Bench
from .contestants import Child, Contestant, Ours
from .environments import Unavailable

KINDS = ("background child", "setsid child", "daemon", "ignores SIGTERM", "main process")
GRACE = 1.0  # seconds after the answer until the survivors are counted


def tree(mark: str) -> list[str]:
    """Five processes, each a sleep that its argument tells apart: 981 to 985 seconds."""
    return [
        "sh",
        "-c",
        f"sleep 981.{mark} & setsid sleep 982.{mark} & "
        f"(setsid sleep 983.{mark} </dev/null >/dev/null 2>&1 &) ; "
        f"sh -c 'trap \"\" TERM; exec sleep 984.{mark}' & exec sleep 985.{mark}",
    ]


def alive(mark: str) -> set[str]:
    """Which of the five run, looked up from this machine, where containers hide nothing."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue  # it ended
        if words[0] == b"sleep" and len(words) > 1 and words[1].endswith(b"." + mark.encode()):
            found.add(KINDS[int(words[1][:3]) - 981])
    return found


async def measure(bench: Bench, ours: Ours, others: Sequence[Child]) -> None:
    """Each contestant; this leaves processes behind in their containers."""
    for contestant in [ours] * bench.scale.repeats + [*others]:
        try:
            await one(bench, contestant)
        except* Unavailable as group:
            bench.report.note(contestant.name, SURVIVORS, group.exceptions[0])


async def one(bench: Bench, contestant: Contestant) -> None:
    """A timeout, survivors counted a second later. Raises Unavailable, in groups or alone."""
    mark, limit, most = f"{secrets.randbelow(10**6):06d}", bench.scale.limit, set[str]()

    async def watch() -> None:
        while True:
            most.update(alive(mark))
            await anyio.sleep(0.1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            seconds = await contestant.timed(tree(mark), limit)
        finally:
            tasks.cancel_scope.cancel()
    await anyio.sleep(GRACE)
    if len(most) < len(KINDS):
        raise Unavailable(f"only {len(most)} of the five processes were seen to run")
    left = sorted(alive(mark), key=KINDS.index)
    bench.report.time(LATENESS, contestant.name, max(seconds - limit, 0.0))
    earlier = bench.report.value(SURVIVORS, contestant.name) or 0
    unit = "of 5" + (f": {', '.join(left)}" if left else "")
    if not earlier or left:
        bench.report.fact(SURVIVORS, contestant.name, max(len(left), earlier), unit)
