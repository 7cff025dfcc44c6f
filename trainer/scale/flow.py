"""Groups in the model: what may begin, what became whole, what the learner takes.

The rules of `group_flow.py`, `group.py` and `group_queue.py` in the model's time: groups open while
the staleness bound or the queue's room allows, a whole one waits for room, the stalest is trained
first, what would be too stale is dropped. (Rollouts of dropped groups end with their present stage
instead of at once.)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .meters import Level, Meters
from .parameters import Groups, Learner, ScaleParameters

if TYPE_CHECKING:
    from simpy import Environment
    from simpy.events import Event


@dataclass(slots=True, eq=False)
class SimulatedGroup:
    """One group, from its opening to its end."""

    number: int
    version: int
    """The oldest policy version in it."""
    todo: int
    """Members that are not handed out yet."""
    out: int
    """Members that are not back yet."""
    solved: list[bool] = field(default_factory=list)
    tokens: float = 0.0
    dead: bool = False
    """It was dropped; nothing of it need go on."""
    context_read: bool = False
    """Its opening is in the prefix cache."""


class Flow:
    """The groups of one simulated run."""

    def __init__(self, env: Environment, parameters: ScaleParameters, meters: Meters) -> None:
        groups = parameters.groups
        self._env, self._meters = env, meters
        self._groups: Groups = groups
        self._learner: Learner = parameters.learner
        self.capacity = groups.per_step * (1 + groups.max_staleness)
        under_way = -(-parameters.slots // groups.size)
        self._ahead = self.capacity + (under_way if groups.asynchronous else 0)
        self.version = self.step = 0
        self._next = self._finished = self._trained = 0
        self._open: dict[int, SimulatedGroup] = {}
        self._unfilled: deque[SimulatedGroup] = deque()
        self._queue: list[tuple[SimulatedGroup, float]] = []
        self._slots: deque[Event] = deque()
        self._changed = env.event()
        self.total: Counter[str] = Counter()
        """Rollouts since the start: handed out, delivered, trained, dropped, by name."""
        self.steps: list[tuple[float, int]] = []
        """When each step was published, and the rollouts trained on until then."""
        self.learning = Level(env)
        """1 while the learner trains or publishes."""
        self.waiting = Level(env)
        """Groups in the queue."""

    def next(self) -> Generator[Event, Any, SimulatedGroup]:
        """A group that one more rollout is for; waits until there is one."""
        since = self._env.now
        while True:
            group = self._hand_out()
            if group is not None:
                self._meters.wait("staleness bound", since)
                self._wake()  # one slot wakes the next, never all at once
                return group
            mine = self._env.event()
            self._slots.append(mine)
            yield mine

    def deliver(
        self, group: SimulatedGroup, solved: bool, tokens: float
    ) -> Generator[Event, Any, None]:
        """A rollout is scored; waits for the queue's room with a group that it made whole."""
        self.total["delivered"] += 1
        group.out -= 1
        if group.dead:
            self.total["dropped"] += 1
            return
        self._meters.counts["rollouts"] += 1
        group.solved.append(solved)
        group.tokens += tokens
        if group.out or group.todo:
            return
        del self._open[group.number]
        if self._groups.drop_equal and len(set(group.solved)) == 1:
            self._dropped(group, "no_spread")
            self._wake()
            return
        self._finished += 1
        since = self._env.now
        while len(self._queue) >= self.capacity:
            yield self._changed
        self._meters.wait("room in the queue", since)
        self._queue.append((group, self._env.now))
        self._meters.counts["kept"] += len(group.solved)
        self.waiting.add(1)
        self._notify()
        self._wake()

    def learn(self) -> Generator[Event, Any, None]:
        """The learner: take, train, publish, without an end."""
        while True:
            since = self._env.now
            self._evict()
            while len(self._queue) < self._groups.per_step:
                yield self._changed
                self._evict()
            self._meters.wait("groups for the learner", since)
            taken = self._take()
            self.learning.add(1)
            yield self._env.timeout(self._seconds(taken))
            self.step += 1
            self._trained += len(taken)
            yield self._env.timeout(self._learner.publish_seconds)
            self.learning.add(-1)
            self.version = self.step
            self._count(taken)
            self._drop_late()
            self._wake()

    def held(self) -> int:
        """Rollouts that are back, and whose group is open, in line, in the queue or in training."""
        return self.total["delivered"] - self.total["trained"] - self.total["dropped"]

    def _hand_out(self) -> SimulatedGroup | None:
        while self._unfilled and self._unfilled[0].dead:
            self._unfilled.popleft()
        if not self._unfilled:
            allowed = self._trained + self._ahead
            if self._finished + len(self._open) >= allowed:
                return None
            size = self._groups.size
            group = SimulatedGroup(number=self._next, version=self.version, todo=size, out=size)
            self._next += 1
            self._open[group.number] = group
            self._unfilled.append(group)
        group = self._unfilled[0]
        group.todo -= 1
        if not group.todo:
            self._unfilled.popleft()
        group.version = min(group.version, self.version)
        self.total["handed out"] += 1
        return group

    def _take(self) -> list[SimulatedGroup]:
        last_chance = self.step + 1 - self._groups.max_staleness
        order = sorted(self._queue, key=lambda held: (held[0].version, held[1]))
        taken = [
            held
            for place, held in enumerate(order)
            if place < self._groups.per_step or held[0].version < last_chance
        ]
        chosen = {id(held[0]) for held in taken}
        self._queue = [held for held in self._queue if id(held[0]) not in chosen]
        self.waiting.add(-len(taken))
        for _, since in taken:
            self._meters.wait("the learner", since)
        self._notify()
        return [group for group, _ in taken]

    def _seconds(self, taken: list[SimulatedGroup]) -> float:
        learner, tokens = self._learner, sum(group.tokens for group in taken)
        shared = tokens * learner.token_seconds / learner.accelerators
        return (learner.seconds + shared) / learner.speed

    def _count(self, taken: list[SimulatedGroup]) -> None:
        trained = sum(len(group.solved) for group in taken)
        self.total["trained"] += trained
        self._meters.counts["trained"] += trained
        self.steps.append((self._env.now, self.total["trained"]))

    def _evict(self) -> None:
        oldest = self.step - self._groups.max_staleness
        stale = [group for group, _ in self._queue if group.version < oldest]
        if stale:
            self._queue = [held for held in self._queue if held[0].version >= oldest]
            self.waiting.add(-len(stale))
            for group in stale:
                self._finished -= 1
                self._meters.counts["kept"] -= len(group.solved)
                self._dropped(group, "stale")
            self._notify()
            self._wake()

    def _drop_late(self) -> None:
        oldest = self.step - self._groups.max_staleness
        for group in [each for each in self._open.values() if each.version < oldest]:
            del self._open[group.number]
            group.dead = True
            self._dropped(group, "stale")
        self._evict()

    def _dropped(self, group: SimulatedGroup, why: str) -> None:
        self.total["dropped"] += len(group.solved)
        self._meters.counts[f"dropped: {why}"] += 1

    def _wake(self) -> None:
        if self._slots:
            self._slots.popleft().succeed()

    def _notify(self) -> None:
        changed, self._changed = self._changed, self._env.event()
        changed.succeed()
