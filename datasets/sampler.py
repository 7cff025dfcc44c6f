"""Which task comes next, and which tasks are held out; every choice a function of its seed.

tasks ── split_by_repository / split_by_time ──► train, heldout
train ── Curriculum(seed) ──► task of group 0, 1, 2, ...   ◄── learn(task, passed, tried)
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .task import Task, TaskError

PRIOR = 1.0  # passes and failures that every task is thought to have had (Laplace)
MEMORY = 32.0  # attempts that count in full; older ones fade as the policy changes


def split_by_repository(
    tasks: Sequence[Task], *, heldout: float, seed: int
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Train and held-out tasks, no repository in both; about `heldout` (a share) held out.

    Tasks of one repository share code and habits, so a split inside it would leak. Raises
    TaskError when fewer than two repositories are there.
    """
    names = sorted({repository_of(task) for task in tasks})
    if len(names) < 2:
        raise TaskError(f"all tasks are of {names[0] if names else 'no repository'}: split by time")
    random.Random(_seed(seed, "split")).shuffle(names)
    wanted, held, count = heldout * len(tasks), set[str](), 0
    for name in names[:-1]:  # one is left to train on
        size = sum(repository_of(task) == name for task in tasks)
        # Nearest to the wanted number: half a repository too much is the same as too little.
        if held and count + size / 2 > wanted:
            continue
        held.add(name)
        count += size
    return _split(tasks, lambda task: repository_of(task) in held)


def split_by_time(
    tasks: Sequence[Task], *, heldout: float
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Train and held-out tasks, the newest `heldout` (a share) of each repository held out.

    Time is `provenance["date"]` (ISO 8601). A policy then never trains on the future of what it is
    tested on. Raises TaskError for a task without a date.
    """
    newest: set[str] = set()
    for name in sorted({repository_of(task) for task in tasks}):
        own = [task for task in tasks if repository_of(task) == name]
        for task in own:
            if "date" not in task.provenance:
                raise TaskError(f"{task.id}: no date in its provenance: split by repository")
        own.sort(key=lambda task: (task.provenance["date"], task.id))
        newest.update(task.id for task in own[len(own) - round(heldout * len(own)) :])
    return _split(tasks, lambda task: task.id in newest)


def repository_of(task: Task) -> str:
    """What tells repositories apart: the name, else the place, else the task's own."""
    return task.repo or task.repository or task.id


def _split(
    tasks: Sequence[Task], is_held: Callable[[Task], bool]
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    return (
        tuple(task for task in tasks if not is_held(task)),
        tuple(task for task in tasks if is_held(task)),
    )


@dataclass(slots=True)
class _Record:
    passed: float = 0.0
    tried: float = 0.0

    @property
    def rate(self) -> float:
        return (self.passed + PRIOR) / (self.tried + 2 * PRIOR)


class Curriculum:
    """Tasks by how much there is to learn from them, but never without the rest.

    `share` of the draws go to tasks that were tried: with a weight of p(1 - p), highest where half
    of the attempts pass, for there a group's rewards differ most. All others go through the tasks
    in turn, each round in an order of its own; so after k * n / (1 - share) draws each of n tasks
    was drawn about k times, however easy or hard it is.
    """

    def __init__(self, tasks: Sequence[Task], seed: int, *, share: float = 0.5) -> None:
        if not tasks:
            raise TaskError("no tasks to choose from: give at least one")
        if not 0 <= share < 1:
            raise TaskError(f"share is {share}: give a number from 0 to below 1")
        self._tasks = {task.id: task for task in tasks}
        self._seed = seed
        self._share = share
        self._records = {task.id: _Record() for task in tasks}
        self._drawn: dict[int, str] = {}
        self._turn = 0

    def __call__(self, number: int) -> Task:
        """The task of draw `number`; asked again it is the same one."""
        if number not in self._drawn:
            chance = random.Random(_seed(self._seed, "draw", number))
            name = self._by_weight(chance) if chance.random() < self._share else None
            if name is None:
                name = self._in_turn()
            self._drawn[number] = name
        return self._tasks[self._drawn[number]]

    def learn(self, task_id: str, *, passed: int, tried: int) -> None:
        """What a group of attempts at a task came to; unknown tasks are let pass."""
        record = self._records.get(task_id)
        if record is None or tried <= 0:
            return
        fade = min(1.0, MEMORY / (record.tried + tried))
        record.passed = (record.passed + passed) * fade
        record.tried = (record.tried + tried) * fade

    def state(self) -> dict[str, object]:
        """All that a later `restore` needs to go on exactly as this one would; JSON types only."""
        return {
            "turn": self._turn,
            "drawn": {str(number): name for number, name in self._drawn.items()},
            "records": {
                name: [record.passed, record.tried]
                for name, record in self._records.items()
                if record.tried
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up where a stopped run was; what it tells of tasks that are gone is let pass."""
        self._turn = int(state["turn"])
        self._drawn = {
            int(number): name for number, name in state["drawn"].items() if name in self._tasks
        }
        for name, (passed, tried) in state["records"].items():
            if name in self._records:
                self._records[name] = _Record(passed, tried)

    def rates(self) -> dict[str, float]:
        """The share of attempts thought to pass, by task; a half for one that was never tried."""
        return {name: record.rate for name, record in self._records.items()}

    def _by_weight(self, chance: random.Random) -> str | None:
        tried = [name for name, record in self._records.items() if record.tried]
        weights = [self._records[name].rate * (1 - self._records[name].rate) for name in tried]
        return chance.choices(tried, weights)[0] if tried else None

    def _in_turn(self) -> str:
        name = self._turns(self._turn)
        self._turn += 1
        return name

    def _turns(self, turn: int) -> str:
        epoch, place = divmod(turn, len(self._tasks))
        order = list(self._tasks)
        random.Random(_seed(self._seed, "round", epoch)).shuffle(order)
        return order[place]


def _seed(*parts: object) -> int:
    """A seed of its own for every purpose; the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
