"""Writes what happens to the ledger and the trajectory store, and keeps the recent past at hand."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import anyio.to_thread

from patchgym.agent import Trajectory
from patchgym.rewards import Reward

from .failures import FailureBudgets, FailureWatch
from .group import Group, WorkItem
from .ledger import Ledger
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
        """Store one finished rollout; RunStopped when failures pass their budget."""
        stored = StoredRollout(trajectory=trajectory, reward=reward)
        await anyio.to_thread.run_sync(self._store.write, stored)
        self._ledger.record(
            "INSERT OR REPLACE INTO rollouts VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                trajectory.rollout_id,
                purpose,
                item.group_id,
                item.task.id,
                item.member,
                trajectory.stop_reason,
                trajectory.error,
                reward.total,
                reward.verdict.status,
                len(trajectory.turns),
                trajectory.sampled_tokens,
                trajectory.oldest_version,
                trajectory.seconds,
                reward.verdict.detail,
                time.time(),
            ),
        )
        if purpose == "train":
            self._remember(trajectory, reward)
        else:
            self._ledger.record(
                "INSERT OR REPLACE INTO evaluations VALUES (?,?,?,?,?,?)",
                (
                    purpose,
                    trajectory.oldest_version,
                    item.task.id,
                    item.member,
                    None if reward.total is None else int(reward.resolved),
                    trajectory.rollout_id,
                ),
            )
        self._failures.note(trajectory)

    def group(self, group: Group, state: str, **more: object) -> None:
        """Record a group's state."""
        members = [member.trajectory.rollout_id for member in group.members]
        self._ledger.group(
            group.group_id, group.task_id, group.number, state, members=members, **more
        )

    def take_window(self) -> Window:
        """Rollouts since the last call."""
        window, self.window = self.window, Window()
        return window

    def _remember(self, trajectory: Trajectory, reward: Reward) -> None:
        window = self.window
        window.outcomes[trajectory.stop_reason] += 1
        window.seconds.append(trajectory.seconds)
        if reward.total is not None:
            window.rewards.append(reward.total)
            window.resolved += reward.resolved
            window.reward_seconds.append(reward.seconds)
