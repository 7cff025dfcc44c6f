"""What becomes of groups, from the first rollout that is handed out to the learner that takes them.

source.next() -> rollouts -> deliver() -> GroupBook -> whole: GroupQueue -> take() -> learner
                                              |           |
                                              +-----------+--> dropped, and why: another opens

What is decided here goes on record at once, and lets go of rollouts that nothing will need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio

from patchgym.agent import Trajectory
from patchgym.rewards import Reward

from .config import RunConfig
from .group import DropReason, Group, GroupBook, Member, WorkItem, allowance
from .group_queue import GroupQueue
from .ledger import group_name
from .parts import RunParts
from .pipeline import Pipeline
from .quarantine import Quarantine
from .resources import Resources
from .resume import Restored
from .session_state import stuck_limit
from .sources import TrainingSource
from .task_sets import RevisitOrder


class GroupFlow:
    """The groups of one run; everything is called on the event loop."""

    def __init__(
        self,
        parts: RunParts,
        pipeline: Pipeline,
        restored: Restored,
        *,
        describe: Callable[[], str],
    ) -> None:
        """`describe()` says what waits for what, for a queue that stays full."""
        config, resources = parts.config, parts.resources
        self._config = config
        self._resources = resources
        self._ledger = parts.ledger
        self._recorder = parts.recorder
        self._rewards = parts.rewards
        self._alarms = parts.alarms
        self._pipeline = pipeline
        self._describe = describe
        self._board = resources.board
        self._identical = 0
        self.trained = restored.committed
        """Groups that weights were made of."""
        self.queue = GroupQueue(config.group.per_step * (1 + config.group.max_staleness))
        self._ready = list(restored.ready)
        self._order, self._quarantine = _tasks(config, resources, restored)
        self.book = GroupBook(
            self._order,
            size=config.group.size,
            seed=config.run.seed,
            retries=config.rollout.retries,
            spare=config.group.spare,
            reopen=sorted(set(restored.reopen) - {each.number for each in restored.given_up()}),
            first_number=restored.next_number,
            already=restored.committed + len(self._ready),
        )
        self.source = TrainingSource(
            self.book, self._allowance, self._opened, lambda: resources.policy.version
        )
        self._restore(restored)

    def begin(self) -> None:
        """Queue what an earlier part of the run left ready."""
        for ready in self._ready:  # no learner takes any yet: there may be more than room
            self.queue.put_now(ready)

    async def deliver(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        """A rollout is over and scored."""
        await self._recorder.rollout("train", item, trajectory, reward)
        member = Member(trajectory=trajectory, reward=reward)
        self._rewards.note_rollout(item.group_id, member)
        result = self.book.finish(item, member)
        if isinstance(result, Group):
            self._board.completes(trajectory.rollout_id)
            if len(self.queue) >= self.queue.capacity:
                self._board.move(trajectory.rollout_id, "queue full")
        await self._settle(item.group_id, item.task.id, item.number, result)

    async def take(self, step: int, culprit: Callable[[], str]) -> list[Group]:
        """The groups of the update after `step`; waits for them, and names `culprit()` past it."""
        group = self._config.group
        await self.queue.enough(
            group.per_step,
            oldest=step - group.max_staleness,
            on_stale=self._went_stale,
            timeout=group.wait_limit,
            culprit=culprit,
        )
        last_chance = step + 1 - group.max_staleness
        if group.quorum:
            self._salvage(last_chance)
        return self.queue.take(group.per_step, last_chance=last_chance)

    def leave_out(self, groups: Sequence[Group], reason: DropReason) -> None:
        """Whole groups are not trained: others may open."""
        for group in groups:
            self.book.throw_away(reason)
            self._recorder.group(group, "dropped", reason=reason)
            self.source.wake()

    def drop_late(self) -> None:
        """With new weights out: what would be too stale by the next step need not go on."""
        oldest = self._resources.learner.step - self._config.group.max_staleness
        self.queue.evict(oldest, self._went_stale)
        for late in self.book.drop_older(oldest):
            self._order.again(late.task_id)
            self._ledger.group(late.group_id, late.task_id, late.number, "dropped", reason="stale")
            self._judge(late.task_id, late.group_id, "stale")
        self._cancel_leftover()
        self.source.wake()

    async def stragglers(self) -> None:
        """Groups with a quorum don't wait for members that have been under way for too long."""
        group = self._config.group
        while True:
            await anyio.sleep(min(1.0, group.straggler_seconds / 4))
            seconds = {
                flight.item.rollout_id: flight.seconds for flight in self._pipeline.flights()
            }
            for waiting in self.book.waiting(group.quorum):
                # One that is being scored is no straggler: it will be there in a moment.
                if all(seconds.get(name, 0) > group.straggler_seconds for name in waiting.rollouts):
                    result = self.book.close_early(waiting.group_id)
                    self._ledger.event(
                        "straggled", group=waiting.group_id, rollouts=list(waiting.rollouts)
                    )
                    self._board.completes(waiting.rollouts[0])
                    await self._settle(waiting.group_id, waiting.task_id, waiting.number, result)

    async def _settle(
        self, group_id: str, task_id: str, number: int, result: Group | DropReason | None
    ) -> None:
        """A group may have become whole: queue or drop it, and let go of what it left over."""
        self._cancel_leftover()
        if self.book.identical > self._identical:
            self._identical = self.book.identical
            self._alarms.ring("identical", f"all rollouts of {group_id} sampled the very same ids")
        if isinstance(result, Group):
            self._noted(result)
            # A learner that takes none for too long is the culprit.
            limit = stuck_limit(self._config)
            await self.queue.put(result, timeout=limit, culprit=self._describe)
        elif result is not None:
            self._dropped(task_id, group_id, number, result)
        self.source.wake()

    def _salvage(self, last_chance: int) -> None:
        """Groups that would be too stale when they are whole make do with their quorum now."""
        for waiting in self.book.waiting(self._config.group.quorum, older_than=last_chance):
            result = self.book.close_early(waiting.group_id)
            if isinstance(result, Group):
                self._noted(result)
                self.queue.put_now(result)
            else:
                self._dropped(waiting.task_id, waiting.group_id, waiting.number, result)
        self._cancel_leftover()

    def _noted(self, group: Group) -> None:
        """A group is whole."""
        self._order.learn(group.task_id, spread=True)
        self._recorder.group(group, "ready")
        self._judge(group.task_id, group.group_id)

    def _dropped(self, task_id: str, group_id: str, number: int, reason: DropReason | None) -> None:
        if reason == "no_spread":
            self._order.learn(task_id, spread=False)
        self._ledger.group(group_id, task_id, number, "dropped", reason=reason or "")
        self._judge(task_id, group_id, "too_few" if reason == "too_few" else "")

    def _judge(self, task_id: str, group_id: str, nothing: str = "") -> None:
        """A group came to its end: its task may be left out from now on."""
        why = self._quarantine.note(task_id, group_id, nothing)
        if not why:
            return
        self._ledger.quarantine(task_id, why)
        self._ledger.event("quarantined", task=task_id, reason=why)
        self._order.leave_out(task_id)
        for open_group in self.book.drop_task(task_id):
            name, number = open_group.group_id, open_group.number
            self._ledger.group(name, task_id, number, "dropped", reason="quarantined")
        self._cancel_leftover()
        self._alarms.ring("quarantined", f"{task_id} is left out: {why}", [group_id])

    def _went_stale(self, group: Group) -> None:
        self._order.again(group.task_id)
        self.leave_out([group], "stale")

    def _cancel_leftover(self) -> None:
        for rollout_id in self.book.leftover():
            self._pipeline.cancel(rollout_id)

    def _opened(self, item: WorkItem) -> None:
        self._ledger.group(item.group_id, item.task.id, item.number, "pending")
        self._resources.domain.expect(self._order.upcoming(self._config.group.per_step))

    def _allowance(self) -> int:
        """Groups that may have been opened by now."""
        group = self._config.group
        left = self._config.run.steps - self._resources.policy.version
        if group.asynchronous:
            under_way = -(-self._config.rollout.in_flight // group.size)
            return self.trained + min(left * group.per_step, self.queue.capacity + under_way)
        sure = allowance(left, group.per_step, group.max_staleness)
        return self.trained + sure + group.extra

    def _restore(self, restored: Restored) -> None:
        """Put on record what the run goes on from."""
        step = self._resources.learner.step
        if step or restored != Restored():
            self._ledger.restore(step, ready=restored.on_record(), reopen=restored.reopen)
        for gone in restored.given_up():
            name, dropped = group_name(gone.number), "quarantined"
            self._ledger.group(name, gone.task_id, gone.number, "dropped", reason=dropped)


def _tasks(
    config: RunConfig, resources: Resources, restored: Restored
) -> tuple[RevisitOrder, Quarantine]:
    """The order of tasks where the run was left, and which of them are left out."""
    order = RevisitOrder(resources.domain.train, config.run.seed, config.tasks.revisit)
    order.replay(restored.visits, restored.passed_over)
    quarantine = Quarantine(
        config.tasks.quarantine,
        [task.id for task in resources.domain.train],
        failures=restored.failures,
        left_out=restored.left_out,
    )
    for task_id in quarantine.left_out:
        order.leave_out(task_id)
    for task_id in restored.late:
        order.again(task_id)
    return order, quarantine
