"""Order, curriculum and splits are functions of their seed, starve nobody, and leak nothing."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.datasets.sampler import (
    Curriculum,
    repository_of,
    split_by_repository,
    split_by_time,
)
from patchgym.datasets.task import Task, TaskError, bundled_tasks

FIRST = bundled_tasks("train")[0]


def tasks(count: int, repositories: int = 1) -> tuple[Task, ...]:
    return tuple(
        replace(
            FIRST,
            id=f"task-{number:03}",
            repo=f"owner/name{number % repositories}",
            provenance={"date": f"2024-01-{number % 28 + 1:02}"},
        )
        for number in range(count)
    )


def simulate(order: Curriculum, rates: dict[str, float], draws: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    drawn = []
    for number in range(draws):
        task = order(number)
        drawn.append(task.id)
        passed = sum(chance.random() < rates[task.id] for _ in range(8))
        order.learn(task.id, passed=passed, tried=8)
    return drawn


def test_without_a_share_each_round_is_every_task_once() -> None:
    order = Curriculum(tasks(7), seed=3, share=0)
    drawn = [order(number).id for number in range(21)]
    rounds = [drawn[start : start + 7] for start in (0, 7, 14)]
    assert all(sorted(each) == sorted(rounds[0]) for each in rounds)
    assert rounds[0] != rounds[1]


def test_the_share_goes_where_half_of_the_attempts_pass() -> None:
    pool = tasks(30)
    rates = {task.id: (0.0, 0.5, 1.0)[number % 3] for number, task in enumerate(pool)}
    drawn = Counter(simulate(Curriculum(pool, seed=1, share=0.5), rates, 900))
    middle = sum(count for name, count in drawn.items() if rates[name] == 0.5)
    assert middle / 900 > 0.5  # 0.33 in turn, and most of the half that is chosen
    # Nobody starves: 450 draws go through 30 tasks in turn.
    assert min(drawn.values()) >= 10


def test_a_task_that_becomes_easy_is_let_go() -> None:
    order = Curriculum(tasks(2), seed=0)
    for _ in range(20):
        order.learn("task-000", passed=4, tried=8)
    for _ in range(20):
        order.learn("task-000", passed=8, tried=8)
    assert order.rates()["task-000"] > 0.95
    assert order.rates()["task-001"] == 0.5


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 60), st.floats(0, 0.9))
def test_a_resumed_order_goes_on_as_if_nothing_had_happened(
    seed: int, count: int, stop: int, share: float
) -> None:
    pool = tasks(count)
    rates = {task.id: (number % 5) / 4 for number, task in enumerate(pool)}
    whole = Curriculum(pool, seed, share=share)
    chance = random.Random(seed)
    resumed: Curriculum | None = None
    for number in range(stop + 20):
        if number == stop:
            resumed = Curriculum(pool, seed, share=share)
            resumed.restore(json.loads(json.dumps(whole.state())))
        task = whole(number)
        if resumed is not None:
            assert resumed(number).id == task.id
        passed = sum(chance.random() < rates[task.id] for _ in range(4))
        whole.learn(task.id, passed=passed, tried=4)
        if resumed is not None:
            resumed.learn(task.id, passed=passed, tried=4)


def test_the_same_draw_is_the_same_task() -> None:
    order = Curriculum(tasks(5), seed=0)
    assert order(3) is order(3)


@given(st.integers(0, 1000), st.integers(2, 9), st.floats(0.1, 0.6))
def test_no_repository_is_on_both_sides(seed: int, repositories: int, share: float) -> None:
    pool = tasks(60, repositories)
    train, heldout = split_by_repository(pool, heldout=share, seed=seed)
    names = {repository_of(task) for task in train}, {repository_of(task) for task in heldout}
    assert not names[0] & names[1]
    assert all(names)
    assert sorted(task.id for task in (*train, *heldout)) == [task.id for task in pool]
    assert abs(len(heldout) - share * 60) <= 60 / repositories + 1


def test_the_newest_are_held_out_in_each_repository() -> None:
    pool = tasks(40, 2)
    train, heldout = split_by_time(pool, heldout=0.25)
    assert len(heldout) == 10
    for name in ("owner/name0", "owner/name1"):
        past = [task.provenance["date"] for task in train if task.repo == name]
        future = [task.provenance["date"] for task in heldout if task.repo == name]
        assert max(past) <= min(future)


def test_what_can_not_be_split_or_ordered_is_refused() -> None:
    with pytest.raises(TaskError, match="split by time"):
        split_by_repository(tasks(5), heldout=0.2, seed=0)
    with pytest.raises(TaskError, match="no date in its provenance"):
        split_by_time([replace(FIRST, provenance={})], heldout=0.2)
    with pytest.raises(TaskError, match="no tasks"):
        Curriculum((), seed=0)
    with pytest.raises(TaskError, match="share is 1"):
        Curriculum(tasks(2), seed=0, share=1)
