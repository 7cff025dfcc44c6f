"""What every format says of a rollout beside its turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from patchgym.trainer.trajectory_store import StoredRollout


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFacts:
    """One rollout of a run, and the run's facts."""

    stored: StoredRollout
    run: str
    """The run's name."""
    model: str
    """Name of the model that answered."""
    scaffold: str
    environment: str
    trainable: bool
    """False for text of a chat endpoint: none of it is to be trained on."""

    @property
    def resolved(self) -> bool | None:
        """None when it is not known."""
        reward = self.stored.reward
        if reward is None or reward.verdict.status == "unknown":
            return None
        return reward.resolved

    @property
    def patch(self) -> str:
        """What was handed in, as text."""
        return self.stored.trajectory.outcome.decode("utf-8", "backslashreplace")

    def labels(self) -> dict[str, Any]:
        """Who, what and how it ended."""
        trajectory, reward = self.stored.trajectory, self.stored.reward
        return {
            "id": trajectory.rollout_id,
            "task_id": trajectory.task_id,
            "run": self.run,
            "model": self.model,
            "resolved": self.resolved,
            "reward": reward.total if reward is not None else None,
            "stop_reason": trajectory.stop_reason,
            "policy_version": trajectory.oldest_version,
            "trainable": self.trainable,
        }
