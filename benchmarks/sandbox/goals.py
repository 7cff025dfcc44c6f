"""What is wanted of sandboxes, and the ratios that have names."""

from __future__ import annotations

import anyio

from . import cycles, hostile
from .bench import (
    ACQUIRE,
    CONCURRENT,
    CYCLE,
    EXEC,
    LATENESS,
    RECYCLING,
    SEQUENTIAL,
    SURVIVORS,
    TAMPERED,
)
from .contestants import DOCKER_PY, HOST, OTHERS, Ours
from .report import Report, Spread

REFERENCE = {EXEC: HOST.name, CYCLE: cycles.RUNC}
OURS = Ours.name


def judge(report: Report) -> None:
    """Measured values beside what was wanted."""
    goal = report.goal
    goal("exec: at most 2 times the host's fork+exec", report.ratio(EXEC, OURS, HOST.name), 2)
    against = report.ratio(EXEC, DOCKER_PY.name, OURS)
    goal("exec: at least 20 times faster than docker-py", against, 20, at_least=True)
    rates = [report.value(each, OURS) for each in (SEQUENTIAL, CONCURRENT)]
    best = max((rate for rate in rates if rate is not None), default=None)
    goal("exec: at least 800/s on one container", best, 800, at_least=True)
    waits = report.times.get((ACQUIRE, OURS))
    p50, p99 = (Spread.of(waits).p50, Spread.of(waits).p99) if waits else (None, None)
    goal("acquire: p50 under 1 ms at 80% of recycling", p50, 1)
    goal("acquire: p99 under 100 ms at 80% of recycling", p99, 100)
    goal("recycling: at least 8/s", report.value(RECYCLING, OURS), 8, at_least=True)
    cycle = report.ratio(CYCLE, cycles.OURS, cycles.RUNC)
    goal("lease cycle: at most 5 times `runc run`", cycle, 5)
    goal("timeout: survivors of the five", report.value(SURVIVORS, OURS), 0)
    goal("timeout: answer within 1,000 ms of the limit", worst(report, LATENESS), 1000)
    goal("fork bomb: next command under 50 ms", worst(report, hostile.NEXT), 50)
    goal("1 GB of output: under 100 MB of memory", report.value(hostile.GROWTH, OURS), 100)
    goal("64 MB of input: at most 12 times 8 MB", report.value(hostile.INPUT, OURS), 12)
    goal("reset: tamperings of 20 visible", report.value(TAMPERED, OURS), 0)
    goal("kill -9: containers gone within 1,000 ms", worst(report, hostile.GONE), 1000)
    touched = report.value(hostile.TOUCHED, OURS)
    goal("kill -9: another owner's containers touched", touched, 0)


def worst(report: Report, measurement: str) -> float | None:
    """Our largest value, milliseconds."""
    return max(report.times.get((measurement, OURS), []), default=None)


def ratios(report: Report) -> dict[str, float | None]:
    """Larger is better for us, but for the first two."""
    named = {
        "exec_vs_host_fork_exec": report.ratio(EXEC, OURS, HOST.name),
        "cycle_vs_runc": report.ratio(CYCLE, cycles.OURS, cycles.RUNC),
        "cycle_vs_docker_run_rm": report.ratio(CYCLE, cycles.RUN_NONE, cycles.REFILL),
        "warm_lease_vs_docker_run_rm": report.ratio(CYCLE, cycles.RUN_NONE, cycles.WARM),
    }
    for entry in OTHERS:
        named[f"exec_vs_{entry.key}"] = report.ratio(EXEC, entry.name, OURS)
        named[f"cycle_vs_{entry.key}"] = report.ratio(CYCLE, entry.name, cycles.OURS)
    return named


async def runc_version() -> str:
    """The one that is installed, or none."""
    try:
        done = await anyio.run_process(["runc", "--version"], check=False)
    except FileNotFoundError:
        return "none"
    return done.stdout.decode().split("\n")[0].rpartition(" ")[2]
