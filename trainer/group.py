"""Groups: rollouts of one task that are compared with each other, and the book that opens them.

    open (members out) --all members back--> ready --taken by a step--> committed
                                         \\-> dropped: no_spread | too_few | stale

The book is a synchronous core (no I/O, no waiting): it decides which rollout comes next and what
a finished one means; the pipeline around it does the waiting. A group is opened only while the
learner could still train it within the staleness bound, which is what pushes back on rollouts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchgym.agent import Trajectory, rule_for, stream_seed
from patchgym.datasets.task import Task
from patchgym.rewards import Reward

DropReason = Literal["no_spread", "too_few", "stale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One scored rollout of a group."""

    trajectory: Trajectory
    reward: Reward

    @property
    def in_baseline(self) -> bool:
        """Its reward is known and its stop reason lets it count."""
        known = self.reward.total is not None
        return known and rule_for(self.trajectory.stop_reason).in_baseline

    @property
    def in_loss(self) -> bool:
        """Its tokens are trained on."""
        return self.in_baseline and rule_for(self.trajectory.stop_reason).in_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All members of a task that could be scored; their number may fall short of the group size."""

    group_id: str
    task_id: str
    number: int
    """Counts groups in the order they were opened."""
    members: tuple[Member, ...]

    @property
    def oldest_version(self) -> int:
        """The oldest policy version in any member that is trained on."""
        versions = [m.trajectory.oldest_version for m in self.members if m.in_loss]
        return min(versions, default=-1)

    def rewards(self) -> list[float]:
        """Rewards of the members that count in the baseline."""
        return [
            m.reward.total for m in self.members if m.in_baseline and m.reward.total is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """One rollout to act."""

    rollout_id: str
    group_id: str
    task: Task
    member: int
    attempt: int
    seed: int
    number: int = -1
    """The group's number; -1 outside training."""


@dataclass(slots=True)
class _Open:
    group_id: str
    number: int
    task: Task
    todo: list[tuple[int, int]]
    """(member, attempt) pairs not handed out yet."""
    out: int = 0
    members: dict[int, Member] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookState:
    """A snapshot for people."""

    opened: int
    open: int
    ready_or_trained: int
    dropped: dict[str, int]


class GroupBook:
    """Decides what is rolled out next, and when a group is whole."""

    def __init__(
        self,
        tasks: Callable[[int], Task],
        *,
        size: int,
        seed: int,
        retries: int,
        reopen: Sequence[int] = (),
        first_number: int = 0,
        already: int = 0,
    ) -> None:
        """`reopen` are numbers of unfinished groups of a resumed run, opened before new ones from
        `first_number` on; `already` counts groups that are ready or trained."""
        self._tasks = tasks
        self._size = size
        self._seed = seed
        self._retries = retries
        self._numbers = deque(reopen)
        self._next_number = first_number
        self._groups: dict[str, _Open] = {}
        self._finished = already
        self.dropped: Counter[DropReason] = Counter()

    def next_item(self, allowance: int) -> WorkItem | None:
        """The next rollout; opens a group only while fewer than `allowance` live ones exist."""
        for group in self._groups.values():
            if group.todo:
                return self._hand_out(group)
        if self._finished + len(self._groups) >= allowance:
            return None
        if self._numbers:
            number = self._numbers.popleft()
        else:
            number = self._next_number
            self._next_number += 1
        group_id = f"g{number:05d}"
        todo = [(member, 0) for member in range(self._size)]
        group = _Open(group_id, number, self._tasks(number), todo)
        self._groups[group_id] = group
        return self._hand_out(group)

    def finish(self, item: WorkItem, member: Member) -> Group | DropReason | None:
        """Take a scored rollout back: a whole group, the reason it is dropped, or None."""
        group = self._groups[item.group_id]
        group.out -= 1
        retried = rule_for(member.trajectory.stop_reason).retried
        if retried and item.attempt < self._retries:
            group.todo.append((item.member, item.attempt + 1))
            return None
        group.members[item.member] = member
        if group.todo or group.out:
            return None
        del self._groups[item.group_id]
        whole = Group(
            group_id=group.group_id,
            task_id=group.task.id,
            number=group.number,
            members=tuple(group.members[index] for index in sorted(group.members)),
        )
        reason = drop_reason(whole)
        if reason is None:
            self._finished += 1
            return whole
        self.dropped[reason] += 1
        return reason

    def went_stale(self) -> None:
        """A finished group was thrown away when it was to be trained: open another instead."""
        self._finished -= 1
        self.dropped["stale"] += 1

    def state(self) -> BookState:
        """A snapshot."""
        return BookState(
            opened=self._next_number,
            open=len(self._groups),
            ready_or_trained=self._finished,
            dropped={str(reason): count for reason, count in self.dropped.items()},
        )

    def _hand_out(self, group: _Open) -> WorkItem:
        member, attempt = group.todo.pop(0)
        group.out += 1
        suffix = f"-retry{attempt}" if attempt else ""
        return WorkItem(
            rollout_id=f"{group.group_id}-m{member}{suffix}",
            group_id=group.group_id,
            task=group.task,
            member=member,
            attempt=attempt,
            number=group.number,
            seed=stream_seed(self._seed, group.number, member, attempt),
        )


def drop_reason(group: Group) -> DropReason | None:
    """Why a whole group carries no signal: too few known rewards, or all of them equal."""
    rewards = group.rewards()
    if len(rewards) < 2:
        return "too_few"
    if max(rewards) - min(rewards) < 1e-9:
        return "no_spread"
    return None


def allowance(step: int, steps: int, per_step: int, max_staleness: int) -> int:
    """Live groups allowed while `step` updates are done, so that none is trained too late.

    Groups are trained `per_step` at a time; one opened now is the allowance-th at worst, hence
    trained at most `max_staleness` updates later.
    """
    return min(steps, step + 1 + max_staleness) * per_step
