"""Queue, ledger and restore against a model, under kills at any moment (hypothesis, stateful).

A run in miniature: groups are opened, become whole, wait, are trained, given up, dropped; now and
then a checkpoint; and kills, which leave of the ledger a beginning of what was recorded since the
last flush, and of the weights the checkpoints, of which a resume takes the newest or an older one.
What holds after every move is below.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from group_builders import book, member
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import Group, Member, WorkItem
from patchgym.trainer.group_queue import GroupQueue
from patchgym.trainer.ledger import Ledger, LedgerReader
from patchgym.trainer.ledger.writer import Statement, Writer
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.resume import restore_groups
from patchgym.trainer.trajectory_store import TrajectoryStore

CAPACITY, PER_STEP, MAX_STALENESS, TASKS = 5, 2, 1, 3
FEW_TASKS = st.lists(st.integers(0, TASKS - 1), min_size=2, max_size=5)


class HeldWriter(Writer):
    """Hands transactions to the real writer only when somebody waits for them: what is held is
    what a kill may lose."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.held: list[tuple[Statement, ...]] = []

    def submit(self, statements: Sequence[Statement]) -> None:
        self.held.append(tuple(statements))

    def wait(self, *, durable: bool, limit: float = math.inf) -> None:
        self.let_go(len(self.held))
        super().wait(durable=durable, limit=limit)

    def let_go(self, count: int) -> None:
        """The first `count` are written."""
        for statements in self.held[:count]:
            super().submit(statements)
        del self.held[:count]

    def kill(self, written: int) -> None:
        """Nothing past the first `written` is on disk."""
        self.let_go(written)
        super().wait(durable=False)
        self.held.clear()
        self.stop(10.0)


@dataclass
class Weights:
    """What was learned from, by step."""

    trained: list[list[str]] = field(default_factory=list)


class QueueAndLedger(RuleBasedStateMachine):
    """The rules; everything but `Weights` and the bookkeeping of the test is the real thing."""

    @initialize()
    def begin(self) -> None:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # syncing takes no time there
        self.folder = Path(tempfile.mkdtemp(prefix="queue-model-", dir=memory))
        self.portal_scope = anyio.from_thread.start_blocking_portal()
        self.portal = self.portal_scope.__enter__()
        self.store = TrajectoryStore(self.folder / "trajectories")
        self.weights, self.checkpoints = Weights(), [Weights()]
        self.opened_ever: set[str] = set()
        self.open({}, 0)

    def open(self, reopened: dict[int, str], next_number: int) -> None:
        """Memory as it is at the start of a process."""
        self.ledger = Ledger(self.folder / "run.sqlite")
        self.writer = HeldWriter(self.folder / "run.sqlite")
        self.ledger._writer = self.writer
        self.portal.call(self.ledger.__aenter__)
        self.recorder = Recorder(self.ledger, self.store, FailureBudgets())
        self.queue = GroupQueue(CAPACITY)
        self.pending: dict[int, str] = {}
        self.to_open = dict(reopened)
        self.next_number = next_number
        self.moves = 0
        self.in_line: list[Group] = []
        self.taken: list[Group] = []

    @property
    def step(self) -> int:
        """Updates that the weights have seen."""
        return len(self.weights.trained)

    @rule(task=st.integers(0, TASKS - 1))
    def open_group(self, task: int) -> None:
        self.moves += 1
        if self.to_open:
            number = min(self.to_open)
            name = self.to_open.pop(number)
        else:
            number, name = self.next_number, f"task{task}"
            self.next_number += 1
        self.pending[number] = name
        self.opened_ever.add(f"g{number:05d}")
        self.ledger.group(f"g{number:05d}", name, number, "pending")

    @rule(
        tasks=st.lists(st.integers(0, TASKS - 1), min_size=2, max_size=5), checkpoint=st.booleans()
    )
    def whole_step(self, tasks: list[int], checkpoint: bool) -> None:
        """What a run does when nothing goes wrong."""
        for task in tasks:
            self.open_group(task)
        for number in sorted(self.pending)[: len(tasks)]:
            self.whole(number, self.step)
        if not self.taken:
            self.take()
        self.train()
        if checkpoint:
            self.write_checkpoint()

    @precondition(lambda self: self.pending)
    @rule(
        data=st.data(),
        older=st.integers(0, MAX_STALENESS),
        reason=st.sampled_from(["", "", "no_spread", "stale"]),
    )
    def group_ends(self, data: st.DataObject, older: int, reason: str) -> None:
        number = data.draw(st.sampled_from(sorted(self.pending)))
        if reason:
            name = self.pending.pop(number)
            self.ledger.group(f"g{number:05d}", name, number, "dropped", reason=reason)
        else:
            self.whole(number, max(0, self.step - older))

    def whole(self, number: int, version: int) -> None:
        """All members of a group are back."""
        group = self.roll_out(number, self.pending.pop(number), version)
        self.recorder.group(group, "ready")
        had_room = len(self.queue) < CAPACITY and not self.in_line
        self.in_line.append(group)
        self.portal.start_task_soon(self.queue.put, group)
        self.settle()
        assert had_room == (group not in self.in_line), "a full queue holds back, and nothing else"

    @precondition(lambda self: not self.taken and len(self.queue) >= PER_STEP)
    @rule()
    def taking(self) -> None:
        self.take()

    def take(self) -> None:
        """The groups of a step, if there are enough."""
        self.evict()
        if len(self.queue) < PER_STEP:
            return
        waiting = self.queue.peek()
        take = partial(self.queue.take, last_chance=self.step + 1 - MAX_STALENESS)
        self.taken = self.portal.call(take, PER_STEP)
        self.recorder.groups(self.taken, "taken", step=self.step)
        assert self.taken == waiting[: len(self.taken)]
        for group in self.taken:
            assert 0 <= self.step - group.oldest_version <= MAX_STALENESS
        check_fair(waiting)
        self.settle()

    @precondition(lambda self: self.taken)
    @rule(end=st.sampled_from(["applied", "given up", "not finite"]))
    def update_ends(self, end: str) -> None:
        if end == "applied":
            self.train()
            return
        for group in self.taken:
            if end == "given up":
                self.recorder.group(group, "ready")
                self.portal.call(self.queue.put_now, group)
            else:
                self.recorder.group(group, "dropped", reason="not_finite")
        self.taken = []

    def train(self) -> None:
        """An update that is applied."""
        if not self.taken:
            return
        step = self.step
        self.weights.trained.append([group.group_id for group in self.taken])
        self.recorder.commit(self.taken, step, {"step": step}, {})
        self.taken = []
        self.evict()

    @rule(durable=st.booleans(), checkpoint=st.booleans())
    def flush(self, durable: bool, checkpoint: bool) -> None:
        self.writer.wait(durable=durable)
        if checkpoint:
            self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """Of the weights as they are."""
        self.writer.wait(durable=True)  # invariant 6 of the ledger
        self.checkpoints.append(Weights([list(groups) for groups in self.weights.trained]))

    @precondition(lambda self: self.moves > 3)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        """Memory is gone; a resume from a checkpoint, mostly the newest, and what is on disk."""
        held = len(self.writer.held)
        self.writer.kill(data.draw(st.just(held) | st.integers(0, held), label="written"))
        self.portal.call(self.new_loop_state)
        newest = len(self.checkpoints) - 1
        chosen = data.draw(st.just(newest) | st.integers(0, newest), label="checkpoint")
        del self.checkpoints[chosen + 1 :]
        self.weights = Weights([list(groups) for groups in self.checkpoints[-1].trained])
        path = self.folder / "run.sqlite"
        restored = restore_groups(path, self.store, self.step)
        with LedgerReader(path) as reader:
            names = {r["number"]: r["task_id"] for r in reader.rows("SELECT * FROM groups")}
        self.open({number: names[number] for number in restored.reopen}, restored.next_number)
        self.ledger.restore(self.step, ready=restored.on_record(), reopen=restored.reopen)
        self.writer.wait(durable=True)  # invariant 8
        # Those that were opened and whose opening was not written are opened under their numbers.
        self.opened_ever = {
            name for name in self.opened_ever if int(name[1:]) < restored.next_number
        }
        for group in restored.ready:
            self.in_line.append(group)
            self.portal.start_task_soon(self.queue.put, group)
        self.settle()

    @invariant()
    def each_group_is_trained_at_most_once(self) -> None:
        trained = [name for groups in self.weights.trained for name in groups]
        assert len(trained) == len(set(trained))

    @invariant()
    def none_is_lost(self) -> None:
        """Each group that was opened is in exactly one place, and the ledger says in which."""
        places: dict[str, str] = {}
        here = [*self.queue.peek(), *self.in_line]
        for state, names in {
            "pending": [f"g{number:05d}" for number in (*self.pending, *self.to_open)],
            "ready": [group.group_id for group in here],
            "taken": [group.group_id for group in self.taken],
            "committed": [name for groups in self.weights.trained for name in groups],
        }.items():
            for name in names:
                assert places.setdefault(name, state) == state
        for name in self.opened_ever:
            assert self.ledger.state(name) == places.get(name, "dropped")

    @invariant()
    def the_queue_is_bounded(self) -> None:
        # What was given up comes back at once, whether there is room or not.
        assert len(self.queue) <= CAPACITY + PER_STEP + CAPACITY

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.kill(len(self.writer.held))
            self.portal.call(self.new_loop_state)
            self.portal_scope.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    async def new_loop_state(self) -> None:
        """Whoever waits in the old process is gone with it."""
        old, self.queue = self.queue, GroupQueue(CAPACITY)
        old._capacity = 1 << 30
        old._notify()
        for _ in range(3 * (2 + len(self.in_line))):
            await anyio.lowlevel.checkpoint()

    def evict(self) -> None:
        """What the learner does before it takes and after it has published."""

        def stale(group: Group) -> None:
            assert self.step - group.oldest_version > MAX_STALENESS
            self.recorder.group(group, "dropped", reason="stale")

        self.portal.call(self.queue.evict, self.step - MAX_STALENESS, stale)
        self.settle()

    def settle(self) -> None:
        """Let whoever can get in get in."""

        async def rounds() -> None:
            for _ in range(3 * (2 + len(self.in_line))):
                await anyio.lowlevel.checkpoint()

        self.portal.call(rounds)
        inside = {id(group) for group in self.queue.peek()}
        self.in_line = [group for group in self.in_line if id(group) not in inside]

    def roll_out(self, number: int, task: str, version: int) -> Group:
        """Two members, stored and recorded before the group is whole (invariant 3)."""
        owner = book()
        members: list[Member] = []
        for index in range(2):
            first = owner.next_item(1)
            assert first is not None
            item = WorkItem(
                rollout_id=f"g{number:05d}-m{index}",
                group_id=f"g{number:05d}",
                task=first.task,
                member=index,
                attempt=0,
                seed=0,
                number=number,
            )
            back = member(item, float(index), version=version)
            self.portal.call(self.recorder.rollout, "train", item, back.trajectory, back.reward)
            members.append(back)
        return Group(group_id=f"g{number:05d}", task_id=task, number=number, members=tuple(members))


def check_fair(order: Sequence[Group]) -> None:
    """The stalest first; among groups of one version no task twice while another waits that has
    not been served since."""
    versions = [group.oldest_version for group in order]
    assert versions == sorted(versions)
    for version in set(versions):
        same = [group.task_id for group in order if group.oldest_version == version]
        for first, task in enumerate(same):
            for second in range(first + 1, len(same)):
                if same[second] == task:
                    between = set(same[first + 1 : second])
                    assert set(same[second:]) - {task} <= between
                    break


TestQueueAndLedger = QueueAndLedger.TestCase
TestQueueAndLedger.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
