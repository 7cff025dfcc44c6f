"""Task sets by name, their order, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from patchgym.datasets.task import bundled_tasks
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.task_sets import EpochOrder, check_disjoint, check_images, load_task_set

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
