"""Round trips of `true` in a container that runs, and how many a second one container does."""

from __future__ import annotations

from collections.abc import Sequence

from .bench import CONCURRENT, EXEC, SEQUENTIAL, Bench
from .contestants import HOST, SUBPROCESS, Child, Contestant, Ours, child
from .environments import Unavailable

WARM_UP = 3
AT_ONCE = 16
OURS_MORE = 40


async def measure(bench: Bench, ours: Ours, others: Sequence[Child]) -> None:
    """All of it; `others` have been started."""
    async with child(HOST, bench.image) as host, child(SUBPROCESS, bench.image) as python:
        await round_trips(bench, [host, python, ours, *others])
    contestants: list[Contestant] = [ours, *others]
    for contestant in contestants:
        await throughput(bench, contestant)


async def round_trips(bench: Bench, contestants: Sequence[Contestant]) -> None:
    """One of each in turn, so that a busy machine slows all; the first few don't count."""
    able = list(contestants)
    for turn in range(bench.scale.rounds + WARM_UP):
        for contestant in tuple(able):
            try:
                seconds = await contestant.run(["true"])
            except Unavailable as reason:
                bench.report.note(contestant.name, EXEC, reason)
                able.remove(contestant)
                continue
            if turn >= WARM_UP:
                bench.report.time(EXEC, contestant.name, seconds)


async def throughput(bench: Bench, contestant: Contestant) -> None:
    """Execs per second on one container."""
    is_ours = isinstance(contestant, Ours)
    count = bench.scale.burst * (OURS_MORE if is_ours else 1)
    for what, concurrency in ((SEQUENTIAL, 1), (CONCURRENT, AT_ONCE)):
        try:
            seconds = await contestant.burst(count, concurrency)
        except Unavailable as reason:
            bench.report.note(contestant.name, what, reason)
        else:
            bench.report.fact(what, contestant.name, count / seconds, "per second")
