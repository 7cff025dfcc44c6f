"""Task sets by name, and the order in which training goes through them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from patchgym.agent import stream_seed
from patchgym.datasets.task import Task, bundled_tasks, load_tasks

from .errors import ConfigError


def load_task_set(name: str) -> tuple[Task, ...]:
    """`bundled:train`, `bundled:heldout`, or a JSONL file; ConfigError when it can't be used."""
    if name == "bundled:train":
        return bundled_tasks("train")
    if name == "bundled:heldout":
        return bundled_tasks("heldout")
    if name.startswith("bundled:"):
        raise ConfigError(
            f"tasks: no bundled set {name!r}: there are bundled:train, bundled:heldout"
        )
    return tuple(load_tasks(Path(name)))


def check_disjoint(train: Sequence[Task], heldout: Sequence[Task]) -> None:
    """Refuse a held-out task that is also trained on."""
    shared = {task.id for task in train} & {task.id for task in heldout}
    if shared:
        raise ConfigError(f"tasks: {sorted(shared)[0]} is in both train and heldout")


def check_images(tasks: Sequence[Task], image: str) -> None:
    """Refuse a task that names another image than the pool's: one run has one image."""
    for task in tasks:
        if task.image not in (None, image):
            raise ConfigError(
                f"{task.id} wants image {task.image}, the run's is {image}: "
                f"set sandbox.image to {task.image}, or split the tasks into one run an image"
            )


class EpochOrder:
    """Task number n of an endless, seeded sequence: every epoch is its own shuffle.

    A function of (seed, n) alone, so that a resumed run goes on in the same order.
    """

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        self._tasks = tuple(tasks)
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def __call__(self, number: int) -> Task:
        epoch, place = divmod(number, len(self._tasks))
        if epoch != self._epoch:
            self._order = list(range(len(self._tasks)))
            random.Random(stream_seed(self._seed, "epoch", epoch)).shuffle(self._order)
            self._epoch = epoch
        return self._tasks[self._order[place]]
