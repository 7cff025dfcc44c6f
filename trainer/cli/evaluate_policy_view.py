"""What the evaluation of a policy shows while it goes: a line a rollout, and a bar below them."""

from __future__ import annotations

from rich.console import Console

from patchgym.agent import Trajectory
from patchgym.rewards import Reward
from patchgym.trainer.group import WorkItem

from .work_bar import WorkBar

_STYLES = {"resolved": "green", "unresolved": "red", "unknown": "yellow"}


class PolicyView(WorkBar):
    """The watcher of a policy's evaluation."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "starting")

    def planned(self, total: int, taken_over: int) -> None:
        """The work is known."""
        self.begin(total, taken_over)
        self.doing = "rolling out"
        if taken_over:
            self.say(f"{taken_over} of {total} rollouts are there already")

    def started(self, item: WorkItem) -> None:
        """One more is under way."""
        self.start(item.rollout_id, item.rollout_id)

    def finished(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        """One more is kept."""
        seconds, status = self.end(item.rollout_id), reward.verdict.status
        self.counts[status] += 1
        text = self.place()
        text.append(f"{status:<10}", style=_STYLES[status])
        text.append(f" {seconds:7.1f} s  {item.rollout_id}")
        why = trajectory.error or reward.verdict.detail
        note = f"{trajectory.stop_reason}, {len(trajectory.turns)} turns"
        if status == "unknown" and why:
            note += f"; {' '.join(why.split())[:160]}"
        text.append(f"  {note}", style="dim")
        self.say(text)

    def repeated(self, item: WorkItem, trajectory: Trajectory) -> None:
        """One comes again: it was no doing of the policy's."""
        self.running.pop(item.rollout_id, None)
        words = " ".join(trajectory.error.split())[:160]
        self.say(f"again: {item.rollout_id}: {trajectory.stop_reason}: {words}")
