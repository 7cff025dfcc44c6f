"""Task sets by name, and the order in which training goes through them."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchgym.agent import stream_seed
from patchgym.datasets.task import Task, bundled_tasks, load_tasks

from .domain import Problem
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

    def __init__(self, tasks: Sequence[Problem], seed: int) -> None:
        self._tasks = tuple(tasks)
        self._seed = seed
        self._epoch = -1
        self._order: list[int] = []

    def __call__(self, number: int) -> Problem:
        epoch, place = divmod(number, len(self._tasks))
        if epoch != self._epoch:
            self._order = list(range(len(self._tasks)))
            random.Random(stream_seed(self._seed, "epoch", epoch)).shuffle(self._order)
            self._epoch = epoch
        return self._tasks[self._order[place]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A group that an earlier part of the run opened."""

    number: int
    task_id: str
    spread: bool | None
    """Whether its rewards differed; None when it isn't known, or not yet."""


class RevisitOrder:
    """All tasks in turn, but a share of the groups goes back to where there was something to learn.

    A group whose rewards are all equal teaches nothing, and while a policy is weak most tasks give
    such groups. A task whose last group had a spread is likely to have one again, so `share` of the
    draws take such a task, the longest not visited first; with none at hand they go on in turn.
    (The idea is prioritized level replay, Jiang et al. 2021; here a spread is what promises gain.)
    """

    def __init__(self, tasks: Sequence[Problem], seed: int, share: float) -> None:
        self._by_id = {task.id: task for task in tasks}
        self._turns = EpochOrder(tasks, seed)
        self._turn = 0
        self._seed = seed
        self._share = share
        self._waiting: dict[str, None] = {}
        """Ids of tasks to go back to, the longest not visited first."""
        self._known: dict[int, Problem] = {}
        self._first: dict[str, None] = {}
        """Ids of tasks that come before any other, in this order."""
        self._left_out: set[str] = set()

    def __call__(self, number: int) -> Problem:
        """The task of group `number`; asked once for each number, in any order."""
        if number in self._known:
            return self._known[number]
        if self._first:
            task = self._by_id[next(iter(self._first))]
            del self._first[task.id]
        elif self._waiting and self._goes_back(number):
            task = self._by_id[next(iter(self._waiting))]
        else:
            self._turn += self._ahead(self._left_out)
            task = self._turns(self._turn)
            self._turn += 1
        self._waiting.pop(task.id, None)
        return task

    def upcoming(self, count: int) -> list[Problem]:
        """The tasks that are likely to come next: those to go back to, then those in turn."""
        back = [self._by_id[task_id] for task_id in list(self._waiting)[:count]]
        turns = (self._turns(self._turn + ahead) for ahead in range(count - len(back)))
        return back + [task for task in turns if task.id not in self._left_out]

    def leave_out(self, task_id: str) -> None:
        """No further group of this task, unless it was opened before. One task must be left."""
        if len(self._left_out | {task_id}) < len(self._by_id):
            self._left_out.add(task_id)
            self._waiting.pop(task_id, None)
            self._first.pop(task_id, None)

    def again(self, task_id: str) -> None:
        """A group of this task came too late: its next one comes first, so that tasks whose
        rollouts take long are not starved by quick ones."""
        # A resumed run may have other tasks.
        if task_id in self._by_id and task_id not in self._left_out:
            self._first[task_id] = None

    def learn(self, task_id: str, *, spread: bool) -> None:
        """A group of this task is whole."""
        self._waiting.pop(task_id, None)
        if spread and task_id not in self._left_out:
            self._waiting[task_id] = None

    def replay(self, visits: Iterable[Visit], passed_over: Collection[str] = ()) -> None:
        """Take up where a stopped run was; unfinished groups keep their tasks. Turns of tasks in
        `passed_over` may have been left out, for a time."""
        for visit in visits:
            if visit.task_id not in self._by_id:
                continue
            self._known[visit.number] = self._by_id[visit.task_id]
            back = self._goes_back(visit.number) and visit.task_id in self._waiting
            ahead = 0 if visit.task_id in passed_over else self._ahead(passed_over)
            if not back and visit.task_id == self._turns(self._turn + ahead).id:
                self._turn += ahead + 1
            self._waiting.pop(visit.task_id, None)
            if visit.spread is not None:
                self.learn(visit.task_id, spread=visit.spread)

    def _ahead(self, passed_over: Collection[str]) -> int:
        """Turns to the next task that is not in `passed_over`; 0 when there is none."""
        places = range(2 * len(self._by_id))  # to the end of the next epoch at the least
        in_turn = (n for n in places if self._turns(self._turn + n).id not in passed_over)
        return next(in_turn, 0)

    def _goes_back(self, number: int) -> bool:
        return random.Random(stream_seed(self._seed, "revisit", number)).random() < self._share
