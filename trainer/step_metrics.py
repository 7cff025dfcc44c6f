"""What a step's row says of the rollouts, the queue and the event loop since the last step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from .group import DropReason, Group
from .group_queue import QueueState
from .loop_lag import LoopLag
from .pipeline import Pipeline
from .recorder import Window
from .resources import Trainee
from .statistics import percentile


class StepMetrics:
    """Counts from one step to the next."""

    def __init__(self, policy: Trainee, pipeline: Pipeline, lag: LoopLag, *, slots: int) -> None:
        self._policy = policy
        self._pipeline = pipeline
        self._lag = lag
        self._slots = slots
        self._sampled = 0
        self._seen = (time.monotonic(), 0.0)

    def row(
        self,
        groups: Sequence[Group],
        window: Window,
        step: int,
        *,
        queue: QueueState,
        dropped: Mapping[DropReason, int],
    ) -> dict[str, object]:
        """Of the step that trained `groups`, while the rollouts of `window` were delivered."""
        count = len(window.rewards)
        staleness = Counter(step - group.oldest_version for group in groups)
        sampled = self._policy.statistics().sampled_tokens
        tokens, self._sampled = sampled - self._sampled, sampled
        lag = self._lag.report()
        return {
            # The last steps may train groups while no new rollout is due: then there is no rate.
            "reward": sum(window.rewards) / count if count else None,
            "pass_rate": window.resolved / count if count else None,
            "rollouts": sum(window.outcomes.values()),
            "outcomes": dict(window.outcomes),
            **_percentiles("rollout", window.seconds),
            **_percentiles("reward", window.reward_seconds),
            "sampled_tokens": tokens,
            "slot_use": self._slot_use(),
            "loop_blocked": lag.blocked_share,
            "loop_lag_p99": lag.p99,
            "staleness": {str(k): v for k, v in sorted(staleness.items())},
            "dropped": dict(dropped),
            "queue": asdict(queue),
        }

    def _slot_use(self) -> float:
        """Share of the slots' time with a rollout in them, since the last call; 0 to 1."""
        now, used = time.monotonic(), self._pipeline.slot_seconds
        (since, before), self._seen = self._seen, (now, used)
        return (used - before) / max(now - since, 1e-9) / self._slots


def step_reward(metrics: Mapping[str, object], groups: Sequence[Group]) -> float | None:
    """Mean reward by which the checkpoint of a step that trained `groups` is ranked.

    That of the rollouts delivered during the step; when there were none, that of `groups`. None
    when neither has a known reward.
    """
    reward = metrics["reward"]
    if isinstance(reward, float):
        return reward
    trained = [value for group in groups for value in group.rewards()]
    return sum(trained) / len(trained) if trained else None


def step_line(step: int, steps: int, metrics: Mapping[str, object], idle_share: float) -> str:
    """A step in one line; `step` counts from 0."""
    line = f"step {step + 1}/{steps}: "
    if metrics["reward"] is not None:
        line += f"reward {metrics['reward']:.3f}, pass rate {metrics['pass_rate']:.0%} of "
    return line + f"{metrics['rollouts']} rollouts, learner idle {idle_share:.0%}"


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p95 and p99 of `seconds`, by name; None without values."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        f"{name}_{key}": percentile(seconds, share) if seconds else None
        for key, share in shares.items()
    }
