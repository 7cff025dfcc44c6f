"""Groups: rollouts of one task that are compared with each other, and the book that opens them.

    open (members out) --all members back--> ready --taken by a step--> committed
                                         \\-> dropped: no_spread | too_few | stale | not_finite |
                                                   quarantined

The book is a synchronous core (no I/O, no waiting): it decides which rollout comes next and what
a finished one means; the pipeline around it does the waiting. A group is opened only while the
learner could still train it within the staleness bound, which is what pushes back on rollouts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchgym.agent import Trajectory, Turn, rule_for, stream_seed
from patchgym.rewards import Reward

from .domain import Problem
from .ledger import group_name

MAX_PARTS = 3
"""How often one member may be cancelled and go on as a partial rollout."""

DropReason = Literal["no_spread", "too_few", "stale", "not_finite", "quarantined"]


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
    task: Problem
    member: int
    attempt: int
    seed: int
    number: int = -1
    """The group's number; -1 outside training."""
    part: int = 0
    """How often this rollout was cancelled as a straggler before."""
    earlier: tuple[Turn, ...] = ()
    """Turns of the part before, to go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Todo:
    member: int
    attempt: int = 0
    part: int = 0
    earlier: tuple[Turn, ...] = ()


@dataclass(slots=True)
class _Open:
    group_id: str
    number: int
    task: Problem
    todo: deque[_Todo]
    out: dict[int, str] = field(default_factory=dict)
    """Rollout ids by member."""
    begun: dict[int, int] = field(default_factory=dict)
    """Policy version at which each member that is out began."""
    members: dict[int, Member] = field(default_factory=dict)

    def oldest(self) -> int:
        """The oldest policy version in it, as far as it is known; large when nothing is."""
        done = [m.trajectory.oldest_version for m in self.members.values() if m.in_loss]
        return min((*done, *(self.begun[member] for member in self.out)), default=1 << 62)

    def counted(self) -> int:
        """Members back that count in the baseline."""
        return sum(member.in_baseline for member in self.members.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BookState:
    """A snapshot for people."""

    opened: int
    open: int
    ready_or_trained: int
    dropped: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An open group and the rollouts that it waits for."""

    group_id: str
    task_id: str
    number: int
    rollouts: tuple[str, ...]


def _waiting(group: _Open) -> Waiting:
    return Waiting(
        group_id=group.group_id,
        task_id=group.task.id,
        number=group.number,
        rollouts=tuple(group.out.values()),
    )


class GroupBook:
    """Decides what is rolled out next, and when a group is whole.

    A group is whole when `size` members that count are back, or when all are. With `spare` members
    more are rolled out than needed and the first to finish make the group; what is still out then
    is left over (`leftover`). That favours short rollouts, which is why it is off by default.
    """

    def __init__(
        self,
        tasks: Callable[[int], Problem],
        *,
        size: int,
        seed: int,
        retries: int,
        spare: int = 0,
        reopen: Sequence[int] = (),
        first_number: int = 0,
        already: int = 0,
    ) -> None:
        """`reopen` are numbers of unfinished groups of a resumed run, opened before new ones from
        `first_number` on; `already` counts groups that are ready or trained."""
        self._tasks = tasks
        self._size = size
        self._spare = spare
        self._seed = seed
        self._retries = retries
        self._numbers = deque(reopen)
        self._next_number = first_number
        self._groups: dict[str, _Open] = {}
        self._unfilled: dict[str, _Open] = {}
        """Those with members that are not handed out yet."""
        self._finished = already
        self._leftover: list[str] = []
        self.dropped: Counter[DropReason] = Counter()
        self.identical = 0
        """Groups so far whose members all sampled the very same ids."""

    def next_item(self, allowance: int, version: int = 0) -> WorkItem | None:
        """The next rollout, to begin at policy `version`; opens a group only while fewer than
        `allowance` live ones exist."""
        if self._unfilled:
            return self._hand_out(next(iter(self._unfilled.values())), version)
        if self._finished + len(self._groups) >= allowance:
            return None
        if self._numbers:
            number = self._numbers.popleft()
        else:
            number = self._next_number
            self._next_number += 1
        group_id = group_name(number)
        todo = deque(_Todo(member=member) for member in range(self._size + self._spare))
        group = _Open(group_id, number, self._tasks(number), todo)
        self._groups[group_id] = self._unfilled[group_id] = group
        return self._hand_out(group, version)

    def finish(self, item: WorkItem, member: Member) -> Group | DropReason | None:
        """Take a scored rollout back: a whole group, the reason it is dropped, or None."""
        group = self._groups.get(item.group_id)
        if group is None:
            return None  # a spare one: its group was whole without it
        del group.out[item.member]
        again = self._again(item, member)
        if again is not None:
            group.todo.append(again)
            self._unfilled[group.group_id] = group
            return None
        group.members[item.member] = member
        if group.counted() < self._size and (group.todo or group.out):
            return None
        return self._close(group)

    def close_early(self, group_id: str) -> Group | DropReason | None:
        """Make do with the members that a group has; what is out is left over."""
        group = self._groups.get(group_id)
        return None if group is None else self._close(group)

    def leftover(self) -> list[str]:
        """Rollouts that no group waits for any more, to be cancelled; each is told once."""
        left, self._leftover = self._leftover, []
        return left

    def waiting(self, quorum: int, *, older_than: int | None = None) -> list[Waiting]:
        """Groups with `quorum` counted members that wait for nothing but rollouts under way; only
        those with a rollout that began before version `older_than`, if given."""
        return [
            _waiting(group)
            for group in self._groups.values()
            if group.out
            and not group.todo
            and group.counted() >= quorum
            and (older_than is None or group.oldest() < older_than)
        ]

    def drop_older(self, oldest: int) -> list[Waiting]:
        """Drop open groups with a rollout that began before version `oldest`: they would be too
        stale whenever they are whole. Their rollouts are left over."""
        late = [group for group in self._groups.values() if group.oldest() < oldest]
        return self._drop(late, "stale")

    def drop_task(self, task_id: str) -> list[Waiting]:
        """Drop the open groups of a task that is left out. Their rollouts are left over."""
        its = [group for group in self._groups.values() if group.task.id == task_id]
        return self._drop(its, "quarantined")

    def throw_away(self, reason: DropReason) -> None:
        """A finished group was thrown away when it was to be trained: open another instead."""
        self._finished -= 1
        self.dropped[reason] += 1

    def state(self) -> BookState:
        """A snapshot."""
        return BookState(
            opened=self._next_number,
            open=len(self._groups),
            ready_or_trained=self._finished,
            dropped={str(reason): count for reason, count in self.dropped.items()},
        )

    def _again(self, item: WorkItem, member: Member) -> _Todo | None:
        """The same member once more, where the table of stop reasons says so."""
        trajectory = member.trajectory
        if trajectory.stop_reason == "straggler" and item.part < MAX_PARTS:
            return _Todo(
                member=item.member,
                attempt=item.attempt,
                part=item.part + 1,
                earlier=trajectory.turns,
            )
        if rule_for(trajectory.stop_reason).retried and item.attempt < self._retries:
            return _Todo(member=item.member, attempt=item.attempt + 1)
        return None

    def _drop(self, groups: Sequence[_Open], reason: DropReason) -> list[Waiting]:
        for group in groups:
            self._forget(group)
            self.dropped[reason] += 1
        return [_waiting(group) for group in groups]

    def _forget(self, group: _Open) -> None:
        """It is open no more; what is out is left over."""
        del self._groups[group.group_id]
        self._unfilled.pop(group.group_id, None)
        self._leftover.extend(group.out.values())

    def _close(self, group: _Open) -> Group | DropReason:
        self._forget(group)
        whole = Group(
            group_id=group.group_id,
            task_id=group.task.id,
            number=group.number,
            members=tuple(group.members[index] for index in sorted(group.members)),
        )
        self.identical += identical(whole)
        reason = drop_reason(whole)
        if reason is None:
            self._finished += 1
            return whole
        self.dropped[reason] += 1
        return reason

    def _hand_out(self, group: _Open, version: int) -> WorkItem:
        todo = group.todo.popleft()
        if not group.todo:
            del self._unfilled[group.group_id]
        suffix = f"-retry{todo.attempt}" if todo.attempt else ""
        suffix += f"-part{todo.part}" if todo.part else ""
        item = WorkItem(
            rollout_id=f"{group.group_id}-m{todo.member}{suffix}",
            group_id=group.group_id,
            task=group.task,
            member=todo.member,
            attempt=todo.attempt,
            number=group.number,
            seed=stream_seed(self._seed, group.number, todo.member, todo.attempt),
            part=todo.part,
            earlier=todo.earlier,
        )
        group.out[todo.member] = item.rollout_id
        sampled = (turn.completion.policy_version for turn in todo.earlier)
        group.begun[todo.member] = min((version, *sampled))
        return item


def drop_reason(group: Group) -> DropReason | None:
    """Why a whole group carries no signal: too few known rewards, or all of them equal."""
    rewards = group.rewards()
    if len(rewards) < 2:
        return "too_few"
    if max(rewards) - min(rewards) < 1e-9:
        return "no_spread"
    return None


def identical(group: Group) -> bool:
    """All members that count sampled the very same ids: no gradient can come of that."""
    given = [
        tuple(turn.completion.tokens for turn in member.trajectory.turns)
        for member in group.members
        if member.in_baseline
    ]
    return len(given) > 1 and len(set(given)) == 1


def allowance(left: int, per_step: int, max_staleness: int) -> int:
    """Groups that may be live, whole or not, with `left` updates to come, so that none is trained
    too late.

    They are trained `per_step` at a time, so that the last of them is trained at most
    `max_staleness` updates later, if they become whole in the order they were opened.
    """
    return min(left, 1 + max_staleness) * per_step
