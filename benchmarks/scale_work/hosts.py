"""What a sandbox host takes for recycling, checkouts, tool calls and verdicts: alone, and full.

*Alone* gives the seconds of each by itself, on a host with nothing else to do. *Full* keeps eight
going at once, which is far more than two cores bear: what comes out a second says how many seconds
of all cores one takes. Both are sums over slices, so that a machine that others use as well is met
in several moods. None of it has slots, groups, a queue or a learner, nor waits for a policy.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import anyio

from patchgym.agent import Observation, Trajectory
from patchgym.agent.action import ToolCall
from patchgym.trainer.repositories import RepositoryDomain
from patchgym.trainer.scale import Activity, Duration

from .world import Answers, SleepingPolicy, act, half, tasks

FULL = 8
"""Side by side."""
CORES = float(len(os.sched_getaffinity(0)))


@dataclass(slots=True)
class Rate:
    """How much of one thing was done, in slices."""

    done: int = 0
    seconds: float = 0.0
    driver: float = 0.0
    """Processor seconds of this process."""

    @property
    def core_seconds(self) -> float:
        """Of all cores, for each."""
        return CORES * self.seconds / self.done

    @property
    def driver_seconds(self) -> float:
        """Of this process, for each."""
        return self.driver / self.done


@dataclass(slots=True)
class HostTimes:
    """Everything measured so far."""

    alone: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds by activity: recycle, first call (checkout and tests), call, score."""
    full: dict[str, Rate] = field(default_factory=lambda: defaultdict(Rate))
    """By what went on side by side: rollouts, scores, recycles at 1, 2, 4, 8."""
    calls: int = 0
    """Tool calls of the rollouts in `full`."""


class Timed:
    """An environment whose calls are timed."""

    answers = True

    def __init__(self, inner: object, log: Callable[[int, float], None]) -> None:
        self._inner = inner
        self._log = log
        self._calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    async def __aenter__(self) -> Timed:
        await self._inner.__aenter__()  # type: ignore[attr-defined]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)  # type: ignore[attr-defined]

    async def step(self, call: ToolCall) -> Observation:
        """As ever, and on record."""
        started = time.monotonic()
        found: Observation = await self._inner.step(call)  # type: ignore[attr-defined]
        self._log(self._calls, time.monotonic() - started)
        self._calls += 1
        return found


async def measure(domain: RepositoryDomain, times: HostTimes, seconds: float) -> None:
    """One slice of everything, `seconds` for each part."""
    known = tasks()
    begin = times.full["rollouts"].done + len(times.alone["call"])
    numbers = itertools.count(begin)
    mixed = SleepingPolicy(Answers(known, half), "const:0")
    always_two = SleepingPolicy(Answers(known, lambda turn, seed: turn > 0), "const:0")
    kept: list[tuple[int, Trajectory]] = []

    async def idle() -> None:
        while domain.pool.statistics().ready < FULL:  # noqa: ASYNC110
            await anyio.sleep(0.005)

    async def alone() -> None:
        number = next(numbers)
        task = known[number % len(known)]
        names = ("first call", "call")
        environment = Timed(
            domain.environment(task, _no_stage),
            lambda call, took: times.alone[names[min(call, 1)]].append(took),
        )
        trajectory = await act(domain, task, always_two, number, environment)
        started = time.monotonic()
        await idle()
        times.alone["recycle"].append(time.monotonic() - started)
        started = time.monotonic()
        await domain.score(task, trajectory)
        times.alone["score"].append(time.monotonic() - started)
        await anyio.sleep(0.3)  # the verdict's sandbox is recycled

    async def a_rollout() -> None:
        number = next(numbers)
        trajectory = await act(domain, known[number % len(known)], mixed, number)
        times.calls += len(trajectory.turns)
        kept.append((number, trajectory))

    async def a_score() -> None:
        serial = next(numbers)
        number, trajectory = kept[serial % len(kept)]
        # A patch that was judged before would not be judged again.
        fresh = re.sub(rb"(?m)^\+    # \d+$", b"+    # %d" % serial, trajectory.outcome)
        await domain.score(known[number % len(known)], replace(trajectory, outcome=fresh))

    async def a_recycle() -> None:
        async with domain.pool.lease(timeout=60):
            pass

    await _repeat(alone, 1, 2 * seconds, Rate())
    await _repeat(a_rollout, FULL, seconds, times.full["rollouts"])
    await _repeat(a_score, FULL, seconds, times.full["scores"])
    for count in (1, 2, 4, FULL):
        await _repeat(a_recycle, count, seconds / 4, times.full[f"recycles {count}"])
        await idle()


async def _repeat(
    what: Callable[[], Awaitable[None]], side_by_side: int, seconds: float, into: Rate
) -> None:
    """Over and over for about `seconds`; what is under way then is finished, and counted."""
    started, driver = time.monotonic(), time.process_time()

    async def one_after_another() -> None:
        while time.monotonic() - started < seconds:
            await what()
            into.done += 1

    async with anyio.create_task_group() as group:
        for _ in range(side_by_side):
            group.start_soon(one_after_another)
    into.seconds += time.monotonic() - started
    into.driver += time.process_time() - driver


def to_json(times: HostTimes) -> dict[str, Any]:
    """What was measured."""
    full = {
        name: {
            "side_by_side": int(name.partition(" ")[2] or FULL),
            "count": rate.done,
            "a_second": round(rate.done / rate.seconds, 4),
            "core_seconds": round(rate.core_seconds, 4),
            "driver_seconds": round(rate.driver_seconds, 5),
        }
        for name, rate in times.full.items()
    }
    alone = {name: [round(value, 4) for value in values] for name, values in times.alone.items()}
    return {"alone": alone, "full": full}


def activities(times: HostTimes) -> dict[str, Activity]:
    """What the model is given: recycle, checkout, call, score.

    Full: a rollout is its recycling, its checkout and its calls; a score is its recycling and
    itself. What belongs to checkout and to calls is shared out by their seconds alone.
    """
    rollouts, scores = times.full["rollouts"], times.full["scores"]
    recycles = times.full[f"recycles {FULL}"]
    calls = times.calls / rollouts.done
    alone = {name: fmean(values) for name, values in times.alone.items()}
    checkout = max(alone["first call"] - alone["call"], 0.01)
    share = 1 / (checkout + calls * alone["call"])
    work = max(rollouts.core_seconds - recycles.core_seconds, 0.05) * share
    driver = max(rollouts.driver_seconds - recycles.driver_seconds, 0.0) * share
    return {
        "recycle": _activity(
            Duration(f"const:{alone['recycle']:.4g}"),
            recycles.core_seconds,
            recycles.driver_seconds,
        ),
        "checkout": _activity(
            Duration(f"const:{checkout:.4g}"), checkout * work, checkout * driver
        ),
        "call": _activity(
            Duration.of(times.alone["call"]), alone["call"] * work, alone["call"] * driver
        ),
        "score": _activity(
            Duration.of(times.alone["score"]),
            max(scores.core_seconds - recycles.core_seconds, 0.05),
            max(scores.driver_seconds - recycles.driver_seconds, 0.0),
        ),
    }


def _activity(alone: Duration, core_seconds: float, driver: float) -> Activity:
    """Of seconds alone in all and core seconds in all, less what is the driver's."""
    mean = alone.mean
    driver = min(driver, 0.5 * mean, 0.5 * core_seconds)
    return Activity(
        seconds=alone.times(1 - driver / mean),
        cores=round((core_seconds - driver) / (mean - driver), 4),
        driver_seconds=round(driver, 5),
    )


def _no_stage(stage: str, /, *, sandbox: str = "") -> None:
    pass
