"""Writes what happens to the ledger and the trajectory store, and keeps the recent past at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio.to_thread

from patchgym.agent import Trajectory
from patchgym.rewards import Reward

from .failures import FailureBudgets, FailureWatch
from .group import Group, WorkItem
from .ledger import GroupState, Ledger
from .trajectory_store import StoredRollout, TrajectoryStore


@dataclass(slots=True)
class Window:
    """Rollouts since the last optimizer step."""

    rewards: list[float] = field(default_factory=list)
    resolved: int = 0
    seconds: list[float] = field(default_factory=list)
    reward_seconds: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)


class Recorder:
    """One per run."""

    def __init__(self, ledger: Ledger, store: TrajectoryStore, budgets: FailureBudgets) -> None:
        self._ledger = ledger
        self._store = store
        self._failures = FailureWatch(budgets)
        self.window = Window()

    async def rollout(
        self, purpose: str, item: WorkItem, trajectory: Trajectory, reward: Reward
    ) -> None:
        """Store one finished rollout: its file, then its rows. RunError when it can't be stored,
        RunStopped when failures pass their budget."""
        await self._ledger.room()
        stored = StoredRollout(trajectory=trajectory, reward=reward)
        await anyio.to_thread.run_sync(self._store.write, stored)
        with self._ledger.transaction():
            self._ledger.rollout(
                purpose, item.group_id, item.task.id, item.member, trajectory, reward
            )
            if purpose != "train":
                self._evaluated(purpose, item, trajectory, reward)
        if purpose == "train":
            self._remember(trajectory, reward)
        self._failures.note(trajectory)

    async def begin(self) -> None:
        """Before anything is rolled out: what a killed run left half-written is taken away, and
        what was recorded so far is on disk."""
        await anyio.to_thread.run_sync(self._store.sweep)
        await self._ledger.flush()

    def group(
        self, group: Group, state: GroupState, *, reason: str = "", step: int | None = None
    ) -> None:
        """Record a whole group's state."""
        self._ledger.group(
            group.group_id,
            group.task_id,
            group.number,
            state,
            reason=reason,
            step=step,
            members=[member.trajectory.rollout_id for member in group.members],
            version=group.oldest_version,
        )

    def groups(self, groups: Sequence[Group], state: GroupState, *, step: int | None) -> None:
        """Record the state of several, all together."""
        with self._ledger.transaction():
            for group in groups:
                self.group(group, state, step=step)

    def commit(
        self,
        groups: Sequence[Group],
        step: int,
        metrics: Mapping[str, object],
        idle: Mapping[str, object],
    ) -> None:
        """Record an update that was applied: its groups and its row, all together."""
        with self._ledger.transaction():
            self.groups(groups, "committed", step=step)
            self._ledger.step(step, metrics)
            self._ledger.meta("idle", idle)

    def take_window(self) -> Window:
        """Rollouts since the last call."""
        window, self.window = self.window, Window()
        return window

    def _evaluated(
        self, purpose: str, item: WorkItem, trajectory: Trajectory, reward: Reward
    ) -> None:
        resolved = None if reward.total is None else int(reward.resolved)
        values = (purpose, trajectory.oldest_version, item.task.id, item.member, resolved)
        self._ledger.record(
            "INSERT OR REPLACE INTO evaluations VALUES (?,?,?,?,?,?)",
            (*values, trajectory.rollout_id),
        )

    def _remember(self, trajectory: Trajectory, reward: Reward) -> None:
        window = self.window
        window.outcomes[trajectory.stop_reason] += 1
        window.seconds.append(trajectory.seconds)
        if reward.total is not None:
            window.rewards.append(reward.total)
            window.resolved += reward.resolved
            window.reward_seconds.append(reward.seconds)
