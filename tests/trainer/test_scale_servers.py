"""The parts of the scale model against closed forms: shared servers, pools, distributions."""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment
from simpy.events import Event

from patchgym.trainer.scale import Duration
from patchgym.trainer.scale.least import Least
from patchgym.trainer.scale.meters import Level, Meters
from patchgym.trainer.scale.sandboxes import Sandboxes
from patchgym.trainer.scale.shared import Shared

Steps = Generator[Event, Any, None]


def one_core(env: Environment, limit: float = math.inf) -> Shared:
    return Shared(env, lambda load: min(1.0, 1.0 / load), capacity=1.0, limit=limit)


def test_two_jobs_on_one_core_share_it() -> None:
    env = Environment()
    core = one_core(env)
    ends: list[float] = []

    def job(start: float, work: float) -> Steps:
        yield env.timeout(start)
        yield core.work(work)
        ends.append(env.now)

    env.process(job(0.0, 2.0))
    env.process(job(1.0, 0.5))
    env.run()
    # Alone for 1 s; then both at half speed until 0.5 is done, 1 s later; then the rest.
    assert ends == pytest.approx([2.0, 2.5])
    assert core.used() == pytest.approx(2.5)


def test_a_pause_holds_up_everybody_and_a_full_server_has_a_line() -> None:
    env = Environment()
    server = one_core(env, limit=1)
    begun, first = env.event(), server.work(1.0)
    second = server.work(1.0, begun=begun)
    server.pause(0.5)
    seen: list[float] = []
    for event in (first, begun, second):
        assert event.callbacks is not None
        event.callbacks.append(lambda _: seen.append(env.now))
    assert server.jobs == 2
    env.run()
    assert seen == pytest.approx([1.5, 1.5, 2.5])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0.01, 5), st.floats(0.2, 3)), min_size=1),
    st.floats(0.5, 8),
)
def test_a_shared_server_loses_no_work(
    jobs: list[tuple[float, float, float]], cores: float
) -> None:
    env = Environment()
    server = Shared(env, lambda load: min(1.0, cores / load), capacity=cores)
    took: list[tuple[float, float]] = []

    def job(start: float, work: float, weight: float) -> Steps:
        yield env.timeout(start)
        yield server.work(work, weight)
        took.append((env.now - start, work))

    for start, work, weight in jobs:
        env.process(job(start, work, weight))
    env.run()
    assert server.used() * cores == pytest.approx(sum(w * h for _, w, h in jobs), rel=1e-6)
    assert len(took) == len(jobs)
    assert all(seconds >= work - 1e-6 for seconds, work in took)


def erlang_c(servers: int, load: float) -> float:
    """Chance to wait of M/M/c with `load` = arrivals times service."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("slots", "load"), [(1, 0.5), (4, 3.0), (16, 13.0)])
def test_a_pool_with_random_arrivals_waits_as_erlang_says(slots: int, load: float) -> None:
    """M/M/c: mean wait = C(c, a) / (c - a), with a service of 1 s."""
    env = Environment()
    meters = Meters(env)
    pool = Sandboxes(
        env, 1, slots, recycle=lambda host: env.timeout(0), meters=meters, name="lease"
    )
    stream = random.Random(1)

    def lease() -> Steps:
        host = yield pool.lease()
        yield env.timeout(stream.expovariate(1.0))
        pool.release(host)

    def arrivals() -> Steps:
        for _ in range(40_000):
            yield env.timeout(stream.expovariate(load))
            env.process(lease())

    env.process(arrivals())
    meters.begin()
    env.run()
    waits = meters.waits["lease"]
    expected = erlang_c(slots, load) / (slots - load)
    assert sum(waits) / len(waits) == pytest.approx(expected, rel=0.1)
    assert sum(wait > 0 for wait in waits) / len(waits) == pytest.approx(
        erlang_c(slots, load), abs=0.03
    )


def test_processor_sharing_with_random_arrivals_takes_as_long_as_its_formula_says() -> None:
    """M/G/1-PS: mean time in the system = service / (1 - load), whatever the distribution."""
    env = Environment()
    core = one_core(env)
    stream, took = random.Random(2), list[float]()
    draw = Duration("lognormal:0.5,1.0").drawer()
    load = 0.6

    def job() -> Steps:
        since = env.now
        yield core.work(draw(stream))
        took.append(env.now - since)

    def arrivals() -> Steps:
        for _ in range(30_000):
            yield env.timeout(stream.expovariate(load / Duration("lognormal:0.5,1.0").mean))
            env.process(job())

    env.process(arrivals())
    env.run()
    expected = Duration("lognormal:0.5,1.0").mean / (1 - load)
    assert sum(took) / len(took) == pytest.approx(expected, rel=0.08)
    assert core.used() / env.now == pytest.approx(load, rel=0.05)


def test_leases_go_to_the_host_with_the_fewest_and_wait_for_recycling() -> None:
    env = Environment()
    meters = Meters(env)
    pool = Sandboxes(env, 2, 3, recycle=lambda host: env.timeout(5), meters=meters, name="lease")
    given_out: list[tuple[float, int]] = []

    def lease(held: float) -> Steps:
        host = yield pool.lease()
        given_out.append((env.now, host))
        yield env.timeout(held)
        pool.release(host)

    for held in (1, 2, 3, 1):
        env.process(lease(held))
    env.run()
    assert given_out == [(0, 0), (0, 1), (0, 0), (6, 0)]
    assert pool.busy.value == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 9))))
def test_least_is_the_least(changes: list[tuple[int, int | None]]) -> None:
    loads: list[int | None] = [0] * 5
    least = Least(5)
    for number, load in changes:
        loads[number] = load
        least.set(number, load)
        known = [(each, place) for place, each in enumerate(loads) if each is not None]
        assert least.first() == (min(known)[1] if known else None)


@pytest.mark.parametrize(
    "spec",
    ["const:2", "uniform:1,3", "lognormal:2,0.5", "exponential:2", "values:1,2,3,4"],
)
def test_a_duration_draws_what_it_says(spec: str) -> None:
    duration, stream = Duration(spec), random.Random(0)
    draw = duration.drawer()
    drawn = [draw(stream) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(duration.mean, rel=0.03)
    assert min(drawn) >= 0
    assert duration.times(3).mean == pytest.approx(3 * duration.mean)


@pytest.mark.parametrize(
    "spec", ["", "const", "const:x", "const:1,2", "const:-1", "uniform:1", "gamma:1", "const:inf"]
)
def test_a_duration_that_makes_no_sense_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        Duration(spec)


def test_a_level_has_its_area() -> None:
    env = Environment()
    level = Level(env, 1.0)
    env.run(until=2)
    level.add(3)
    env.run(until=5)
    assert level.area() == pytest.approx(2 * 1 + 3 * 4)
