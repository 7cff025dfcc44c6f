"""Writes what happens to the ledger and the trajectory store, and keeps the recent past at hand."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field

import anyio.to_thread

from patchgym.agent import Trajectory, rule_for
from patchgym.rewards import Reward

from .errors import RunStopped
from .group import Group, WorkItem
from .ledger import Ledger
from .trajectory_store import StoredRollout, TrajectoryStore

_BUDGET_WINDOW = 50
_BUDGET_MINIMUM = 20


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

    def __init__(self, ledger: Ledger, store: TrajectoryStore, failure_budget: float) -> None:
        self._ledger = ledger
        self._store = store
        self._failure_budget = failure_budget
        self._recent: deque[bool] = deque(maxlen=_BUDGET_WINDOW)
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
        self._spend(trajectory)

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

    def _spend(self, trajectory: Trajectory) -> None:
        failed = rule_for(trajectory.stop_reason).retried
        self._recent.append(failed)
        if len(self._recent) < _BUDGET_MINIMUM or not failed:
            return
        share = sum(self._recent) / len(self._recent)
        if share > self._failure_budget:
            raise RunStopped(
                f"{share:.0%} of the last {len(self._recent)} rollouts failed by infrastructure "
                f"(rollout.failure_budget is {self._failure_budget:.0%}); the last: "
                f"{trajectory.stop_reason}: {trajectory.error}; patchgym doctor may say why"
            )
