"""Task sets by name, their order, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from patchgym.datasets.task import bundled_tasks
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.task_sets import (
    EpochOrder,
    RevisitOrder,
    Visit,
    check_disjoint,
    check_images,
    load_task_set,
)

TASKS = bundled_tasks("train")[:7]


def test_bundled_sets_are_disjoint_and_large_enough() -> None:
    train, heldout = load_task_set("bundled:train"), load_task_set("bundled:heldout")
    check_disjoint(train, heldout)
    assert len(train) >= 80
    assert len(heldout) >= 40
    functions = [{t.focus.function for t in tasks if t.focus} for tasks in (train, heldout)]
    assert not functions[0] & functions[1]


def test_a_shared_task_is_named() -> None:
    with pytest.raises(ConfigError, match=TASKS[2].id):
        check_disjoint(TASKS, TASKS[2:3])


def test_another_image_is_named() -> None:
    check_images(TASKS, "base")
    check_images([replace(TASKS[0], image="base")], "base")
    with pytest.raises(ConfigError, match="wants image other, the run's is base"):
        check_images([*TASKS, replace(TASKS[0], image="other")], "base")


def test_every_epoch_is_a_shuffle_that_only_depends_on_the_seed() -> None:
    order = EpochOrder(TASKS, 3)
    ids = [order(number).id for number in range(21)]
    for epoch in range(3):
        assert Counter(ids[7 * epoch : 7 * epoch + 7]) == Counter(t.id for t in TASKS)
    assert ids[:7] != ids[7:14]
    resumed = EpochOrder(TASKS, 3)
    assert [resumed(number).id for number in range(10, 21)] == ids[10:]
    assert [EpochOrder(TASKS, 4)(number).id for number in range(7)] != ids[:7]


def test_revisits_go_where_there_was_a_spread() -> None:
    order = RevisitOrder(TASKS, 3, 1.0)
    turns = [EpochOrder(TASKS, 3)(number).id for number in range(7)]
    assert [order(0).id, order(1).id, order(2).id] == turns[:3]  # nothing to go back to yet
    order.learn(turns[1], spread=True)
    order.learn(turns[0], spread=True)
    order.learn(turns[2], spread=False)
    assert [order(3).id, order(4).id] == [turns[1], turns[0]]  # in the order of their spreads
    assert order(5).id == turns[3]  # both are out: on with the turn
    order.learn(turns[1], spread=False)  # it is mastered, or lost: not again
    order.learn(turns[0], spread=True)
    assert [order(6).id, order(7).id] == [turns[0], turns[4]]
    never = RevisitOrder(TASKS, 3, 0.0)
    never.learn(turns[5], spread=True)
    assert [never(number).id for number in range(7)] == turns


def test_revisits_go_on_after_a_resume() -> None:
    order = RevisitOrder(TASKS, 3, 0.5)
    visits = []
    for number in range(20):
        task = order(number)
        spread = number % 3 == 0 if number < 18 else None
        if spread is not None:
            order.learn(task.id, spread=spread)
        visits.append(Visit(number=number, task_id=task.id, spread=spread))
    resumed = RevisitOrder(TASKS, 3, 0.5)
    resumed.replay(visits)
    assert resumed(19).id == visits[19].task_id  # reopened: the same task
    assert [resumed(n).id for n in range(20, 30)] == [order(n).id for n in range(20, 30)]
