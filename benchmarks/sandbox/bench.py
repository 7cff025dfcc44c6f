"""What every measurement is given: images, the engine, how much to do, and where to put it."""

from __future__ import annotations

from dataclasses import dataclass

from patchgym.sandbox import Engine

from .report import Report

EXEC = "`true` in a running container"
CYCLE = "container made, `true`, container gone"
SEQUENTIAL = "`true` in one container, one after another"
CONCURRENT = "`true` in one container, 16 at a time"
RECYCLING = "leases, sustained"
ACQUIRE = "wait for a lease at 80% of the recycling rate"
ACQUIRE_BURSTY = "wait for a lease at 80% of the recycling rate, arrivals at random"
SURVIVORS = "processes of five alive after the timeout"
LATENESS = "answer after the limit"
TAMPERED = "tamperings seen by the next user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much to do."""

    rounds: int
    """Of execs."""
    burst: int
    """Execs of a slow contestant in a throughput measurement; ours does 40 times as many."""
    cycles: int
    """Containers of each contestant."""
    cycle_seconds: float
    """Of each contestant; one that is past them and has three cycles drops out."""
    lazy_cycles: int
    """Of those that wait for ten seconds at each."""
    recycling: float
    """Seconds of leases, as fast as they come."""
    arrivals: int
    """Leases at 80% of that."""
    limit: int
    """Seconds of the timeouts."""
    repeats: int
    """Of the rest: timeouts, fork bombs, owners killed."""


FULL = Scale(
    rounds=150,
    burst=96,
    cycles=16,
    cycle_seconds=30,
    lazy_cycles=2,
    recycling=25,
    arrivals=200,
    limit=2,
    repeats=3,
)
QUICK = Scale(
    rounds=20,
    burst=16,
    cycles=4,
    cycle_seconds=6,
    lazy_cycles=1,
    recycling=6,
    arrivals=40,
    limit=1,
    repeats=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One run."""

    image: str
    """For all."""
    rivals_image: str | None
    """For those that need something in it; None when it can't be had."""
    engine: Engine
    scale: Scale
    report: Report
