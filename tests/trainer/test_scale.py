"""The scale model as a whole: laws that hold for any system, and cases that can be counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.trainer.errors import UserError
from patchgym.trainer.scale import (
    Activity,
    Duration,
    Groups,
    Hosts,
    Learner,
    Orchestrator,
    Prices,
    Sampler,
    ScaleParameters,
    ScaleReport,
    Scoring,
    Workload,
    simulate,
    sized,
)
from patchgym.trainer.scale.report import Waits, bottleneck


def activity(spec: str, cores: float = 1.0) -> Activity:
    return Activity(seconds=Duration(spec), cores=cores)


PLAIN = ScaleParameters(
    slots=16,
    workload=Workload(
        turns=2,
        checkout=activity("const:0.1"),
        call=activity("const:0.4"),
        score=activity("const:0.5"),
    ),
    sampler=Sampler(accelerators=0, latency=Duration("const:2")),
    hosts=Hosts(cores=1e6, recycle=activity("const:0.2")),
    scoring=Scoring(workers=64),
    groups=Groups(size=4, per_step=2, max_staleness=2, asynchronous=True, drop_equal=False),
)
"""Nothing is short, nothing is random: a rollout is 0.1 + 2 * (2 + 0.4) = 4.9 s."""
MANY = replace(
    PLAIN,
    slots=64,
    sampler=Sampler(accelerators=0, latency=Duration("exponential:2")),
    groups=replace(PLAIN.groups, per_step=16, asynchronous=False),
)
"""More of the same, in batches that keep up: nothing is dropped; out of step with each other."""
RANDOM = replace(
    PLAIN,
    workload=Workload(
        turns=3,
        solved=0.4,
        turn_tokens=Duration("lognormal:60,0.5"),
        checkout=activity("uniform:0.05,0.15"),
        call=activity("lognormal:0.4,0.6", 0.8),
        score=activity("exponential:0.5"),
    ),
    sampler=Sampler(accelerators=1, steps=((1, 0.02), (8, 0.03), (32, 0.08)), turns=16),
    hosts=Hosts(count=3, cores=4, recycle=activity("const:0.2", 1.5)),
    scoring=Scoring(workers=6, queue=8),
    groups=Groups(size=4, per_step=2, max_staleness=2, asynchronous=True),
    learner=Learner(seconds=0.5, token_seconds=1e-4, publish_seconds=0.1),
    orchestrator=Orchestrator(turn_seconds=0.002, rollout_seconds=0.01),
)


def test_without_contention_throughput_is_slots_by_the_length_of_a_rollout() -> None:
    report = simulate(PLAIN, rollouts=1600)
    assert report.rollouts_per_second == pytest.approx(16 / 4.9, rel=0.02)
    assert report.trained_per_second == pytest.approx(16 / 4.9, rel=0.02)
    assert report.waits["rollout"].p99 == pytest.approx(4.9)
    assert report.bottleneck == "rollout slots"


def test_on_full_cores_throughput_is_cores_by_the_work_of_a_rollout() -> None:
    """2 recyclings of 0.2, checkout 0.1, 2 calls of 0.4, score 0.5: 1.8 core seconds."""
    given = replace(MANY, hosts=replace(PLAIN.hosts, cores=2.0))
    report = simulate(given, rollouts=1500)
    assert report.rollouts_per_second == pytest.approx(2 / 1.8, rel=0.02)
    assert report.use["host cores"] == pytest.approx(1.0, abs=0.01)
    assert report.bottleneck == "host cores"


def test_a_full_sampler_gives_its_token_rate() -> None:
    sampler = Sampler(accelerators=2, steps=((1, 0.02), (4, 0.04)), turns=4, prefill_rate=1e9)
    workload = replace(PLAIN.workload, turn_tokens=Duration("const:40"))
    report = simulate(replace(MANY, sampler=sampler, workload=workload))
    assert report.tokens_per_second == pytest.approx(2 * 4 / 0.04, rel=0.02)
    assert report.bottleneck == "sampler"
    assert report.waits["the sampler"].p50 > 1


def test_reading_context_in_takes_the_samplers_time() -> None:
    """A turn alone: 20 tokens at 0.02 s, and 100 tokens of context at 100 a second."""
    sampler = Sampler(accelerators=1, steps=((1, 0.02),), prefill_rate=100, turns=1)
    workload = Workload(
        turns=1, turn_tokens=Duration("const:20"), opening_tokens=100, observation_tokens=0
    )
    groups = replace(PLAIN.groups, size=1, drop_equal=False)
    given = replace(PLAIN, slots=4, sampler=sampler, workload=workload, groups=groups)
    assert simulate(given).rollouts_per_second == pytest.approx(1 / 1.4, rel=0.02)
    shared = simulate(replace(given, groups=replace(groups, size=4)))
    assert shared.rollouts_per_second == pytest.approx(4 / (4 * 0.4 + 1.0), rel=0.03)


def test_a_learner_that_is_slow_sets_the_pace() -> None:
    given = replace(PLAIN, learner=Learner(seconds=8, publish_seconds=2))
    report = simulate(replace(given, groups=replace(given.groups, asynchronous=False)))
    assert report.trained_per_second == pytest.approx(8 / 10, rel=0.02)
    assert report.use["learner"] == pytest.approx(1, abs=0.02)
    assert report.bottleneck == "learner"
    assert report.steps_per_hour == pytest.approx(360, rel=0.02)


def test_a_strict_bound_on_staleness_makes_slots_wait() -> None:
    """On-policy: a step is rollouts of 4.9 s, their score of 0.5, and an update of 2 s."""
    given = replace(PLAIN, learner=Learner(seconds=2))
    strict = replace(given.groups, asynchronous=False, max_staleness=0)
    report = simulate(replace(given, groups=strict))
    assert report.trained_per_second == pytest.approx(8 / (4.9 + 0.5 + 2), rel=0.02)
    assert report.bottleneck == "staleness bound"


def test_a_rollout_process_is_one_core() -> None:
    given = replace(MANY, orchestrator=Orchestrator(turn_seconds=0.05, rollout_seconds=0.1))
    report = simulate(given, rollouts=1500)
    assert report.rollouts_per_second == pytest.approx(1 / 0.2, rel=0.02)
    assert report.bottleneck == "orchestrator"
    more = replace(given, orchestrator=replace(given.orchestrator, processes=2))
    two = simulate(more, rollouts=1500)
    assert two.rollouts_per_second == pytest.approx(2 / 0.2, rel=0.02)


def test_the_same_seed_gives_the_same_report_and_another_one_another() -> None:
    first, again = simulate(RANDOM, rollouts=300), simulate(RANDOM, rollouts=300)
    assert first == again
    assert simulate(replace(RANDOM, seed=1), rollouts=300) != first


def _conserved(report: ScaleReport, slots: int) -> None:
    counts = report.counts
    assert counts["delivered"] == counts["trained"] + counts["dropped"] + counts["held"]
    under_way = counts["handed out"] - counts["delivered"]
    assert 0 <= under_way <= slots + 6 + 8  # in slots, with workers, and in their line
    assert counts["held"] >= 0


@settings(max_examples=15, deadline=None)
@given(
    slots=st.integers(1, 48),
    size=st.integers(1, 6),
    per_step=st.integers(1, 4),
    staleness=st.integers(0, 2),
    asynchronous=st.booleans(),
    hosts=st.integers(1, 4),
    solved=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_any_cluster_keeps_count_of_its_rollouts(
    slots: int,
    size: int,
    per_step: int,
    staleness: int,
    asynchronous: bool,
    hosts: int,
    solved: float,
    seed: int,
) -> None:
    given = replace(
        RANDOM,
        slots=slots,
        seed=seed,
        workload=replace(RANDOM.workload, solved=solved),
        hosts=replace(RANDOM.hosts, count=hosts),
        groups=Groups(
            size=size,
            per_step=per_step,
            max_staleness=staleness,
            asynchronous=asynchronous and staleness > 0,
        ),
    )
    report = simulate(given, rollouts=60)
    _conserved(report, slots)
    assert all(-1e-9 <= share <= 1 + 1e-6 for share in report.use.values()), report.use


@pytest.mark.parametrize("seed", range(3))
def test_littles_law(seed: int) -> None:
    """Mean number in a place = rate through it times mean time in it."""
    report = simulate(replace(RANDOM, seed=seed, slots=24), rollouts=2000)
    rollout = report.waits["rollout"]
    rate = rollout.count / report.seconds
    assert report.means["flying"] == pytest.approx(rate * rollout.mean, rel=0.01)
    queue = report.waits["the learner"]
    expected = queue.count / report.seconds * queue.mean
    assert report.means["queue"] == pytest.approx(expected, rel=0.05, abs=0.02)


def test_more_slots_give_more_until_the_bottleneck_and_no_more_past_it() -> None:
    reports = {
        slots: simulate(
            replace(
                RANDOM,
                slots=slots,
                groups=replace(RANDOM.groups, per_step=max(slots // 8, 1), drop_equal=False),
                scoring=replace(RANDOM.scoring, workers=64),
            ),
            rollouts=800,
        )
        for slots in (2, 4, 8, 16, 32, 64, 128)
    }
    rates = [report.rollouts_per_second for report in reports.values()]
    assert all(b > 0.95 * a for a, b in zip(rates, rates[1:], strict=False)), rates
    assert rates[1] > 1.6 * rates[0]
    assert rates[-1] == pytest.approx(rates[-2], rel=0.06)
    assert reports[2].bottleneck == "rollout slots"
    assert reports[128].bottleneck in ("sampler", "host cores")


DOUBLED: Mapping[str, Callable[[ScaleParameters], ScaleParameters]] = {
    "sampler": lambda p: replace(
        p, sampler=replace(p.sampler, accelerators=2 * p.sampler.accelerators)
    ),
    "host cores": lambda p: replace(p, hosts=replace(p.hosts, cores=2 * p.hosts.cores)),
    "learner": lambda p: replace(p, learner=replace(p.learner, speed=2.0)),
    "reward workers": lambda p: replace(
        p, scoring=replace(p.scoring, workers=2 * p.scoring.workers)
    ),
    "rollout slots": lambda p: replace(p, slots=2 * p.slots),
}
CASES = {
    "sampler": replace(RANDOM, slots=64, sampler=replace(RANDOM.sampler, speed=0.4)),
    "host cores": replace(RANDOM, slots=64, hosts=replace(RANDOM.hosts, cores=0.5)),
    "learner": replace(
        RANDOM, learner=Learner(seconds=12), groups=replace(RANDOM.groups, asynchronous=False)
    ),
    "reward workers": replace(RANDOM, slots=32, scoring=Scoring(workers=1, queue=8)),
    "rollout slots": replace(RANDOM, slots=4),
}


@pytest.mark.parametrize("name", CASES)
def test_doubling_what_is_named_as_the_bottleneck_helps_most(name: str) -> None:
    given = replace(CASES[name], groups=replace(CASES[name].groups, drop_equal=False))
    report = simulate(given, rollouts=500)
    assert report.bottleneck == name
    gains = {
        other: simulate(double(given), rollouts=500).trained_per_second / report.trained_per_second
        for other, double in DOUBLED.items()
    }
    assert max(gains, key=lambda other: gains[other]) == name, gains
    assert gains[name] > 1.3


def test_costs_are_hours_times_prices_by_what_was_trained() -> None:
    given = replace(PLAIN, prices=Prices(accelerator_hour=3.0, host_hour=0.5))
    given = replace(given, hosts=replace(given.hosts, count=2))
    report = simulate(given)
    hour = 1 * 3.0 + 2 * 0.5  # one learner's accelerator, two hosts
    expected = hour / 3600 / report.trained_per_second * 1000
    assert report.cost_per_thousand == pytest.approx(expected)
    assert report.hosts_per_accelerator == 2
    assert simulate(PLAIN).cost_per_thousand == 0


def test_a_sized_cluster_waits_for_nothing_and_is_not_idle() -> None:
    given = replace(
        RANDOM,
        slots=256,
        sampler=replace(RANDOM.sampler, accelerators=64),
        groups=replace(RANDOM.groups, per_step=32),
        learner=Learner(token_seconds=4e-3),
    )
    planned = sized(given, use=0.6)
    report = simulate(planned)
    plenty = replace(planned.hosts, count=200)
    most = simulate(replace(planned, hosts=plenty, scoring=Scoring(workers=300)))
    assert report.rollouts_per_second > 0.9 * most.rollouts_per_second
    assert 0.4 < report.use["host cores"] < 0.8
    assert 0.3 < report.use["learner"] < 0.95


def test_groups_without_a_spread_are_dropped() -> None:
    report = simulate(replace(RANDOM, workload=replace(RANDOM.workload, solved=0.0)), rollouts=200)
    assert report.trained_per_second == 0 == report.counts["trained"]
    assert report.rollouts_per_second > 0
    assert report.cost_per_thousand == 0


def test_parameters_come_back_from_their_json() -> None:
    assert ScaleParameters.from_json(RANDOM.to_json()) == RANDOM
    some = ScaleParameters.from_json('{"slots": 8, "workload": {"call": {"seconds": "const:2"}}}')
    assert some == replace(ScaleParameters(slots=8), workload=Workload(call=activity("const:2")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"slotz": 8}', "slotz"),
        ('{"slots": 0}', "slots"),
        ('{"hosts": {"cores": 0}}', "hosts.cores"),
        ('{"hosts": {"sandboxes": -1}}', "hosts.sandboxes"),
        ('{"workload": {"solved": 2}}', "workload.solved"),
        ('{"sampler": {"steps": [[8, 0.1], [1, 0.2]]}}', "sampler.steps"),
        ('{"groups": {"max_staleness": -1}}', "groups.max_staleness"),
        ('{"workload": {"call": {"seconds": "sometimes"}}}', "sometimes"),
    ],
)
def test_what_can_not_be_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ScaleParameters.from_json(text)


def test_the_step_of_a_batch_goes_along_the_measured_pairs() -> None:
    sampler = Sampler(steps=((1, 0.02), (8, 0.034), (32, 0.13)), turns=64, speed=2)
    assert sampler.step_seconds(1) == pytest.approx(0.01)
    assert sampler.step_seconds(4.5) == pytest.approx((0.02 + 0.014 / 2) / 2)
    assert sampler.step_seconds(56) == pytest.approx((0.13 + 0.096) / 2)
    assert sampler.token_rate == pytest.approx(64 / sampler.step_seconds(64))


def test_percentiles_are_by_nearest_rank() -> None:
    waits = Waits.of([float(value) for value in range(100, 0, -1)])
    assert (waits.p50, waits.p95, waits.p99, waits.count) == (50, 95, 99, 100)
    assert Waits.of([3.0]).p99 == 3.0
    assert Waits.of([]).mean == 0


def test_a_server_that_is_full_explains_the_places_before_it() -> None:
    full = {"slots": 1.0, "reward workers": 1.0, "sandboxes": 1.0}
    assert bottleneck({**full, "host cores": 0.95}) == "host cores"
    assert bottleneck({**full, "host cores": 0.5}) == "sandboxes"
    assert bottleneck({"slots": 0.99}) == "rollout slots"
    assert bottleneck({"slots": 0.5}) == "staleness bound"


def test_without_simpy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simpy", None)
    with pytest.raises(UserError, match=r"patchgym\[scale\]"):
        simulate(PLAIN)


def test_the_page_s_example_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (root / "docs" / "scale.md").read_text()
    exec(page.partition("```python\n")[2].partition("```")[0], {})
    name, hosts, cost = capsys.readouterr().out.rsplit(maxsplit=2)
    assert name and int(hosts) >= 1 and float(cost) > 0
