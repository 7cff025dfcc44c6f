"""Failure budgets: how much may go wrong, by kind, before a run stops with the reason."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, fields
from typing import cast

from patchgym.agent import FailureKind, Trajectory, rule_for

from .errors import RunStopped

WINDOW = 200
"""Rollouts looked back on."""
MINIMUM = 20
"""Rollouts before a share means anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureBudgets:
    """Shares of the last 200 rollouts that may fail, by what failed; 1 never stops a run."""

    policy: float = 0.3
    """The sampler."""
    sandbox: float = 0.3
    """Sandboxes and the engine behind them."""
    environment: float = 0.3
    """The environment's own code and tools."""
    host: float = 1.0
    """Machines of a cluster: one that is lost takes all of its rollouts with it."""
    scoring: float = 0.3
    """Rewards that could not be known."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not 0 <= value <= 1:
                raise ValueError(f"failures.{entry.name} is {value}: it must be 0 to 1")


class FailureWatch:
    """Counts the failures of a run; one per run."""

    def __init__(self, budgets: FailureBudgets) -> None:
        self._budgets = budgets
        self._recent: deque[FailureKind | None] = deque(maxlen=WINDOW)
        self.counts: Counter[FailureKind] = Counter()
        """Since the start."""

    def note(self, trajectory: Trajectory) -> None:
        """Count a finished rollout; RunStopped, naming kind and last error, past a budget."""
        kind = rule_for(trajectory.stop_reason).failure
        self._recent.append(kind)
        if kind is None:
            return
        self.counts[kind] += 1
        if len(self._recent) < MINIMUM:
            return
        share = self._recent.count(kind) / len(self._recent)
        budget = cast(float, getattr(self._budgets, kind))
        if share > budget:
            raise RunStopped(
                f"{share:.0%} of the last {len(self._recent)} rollouts failed by {kind} "
                f"(failures.{kind} is {budget:.0%}); the last: "
                f"{trajectory.stop_reason}: {trajectory.error}; patchgym doctor may say why"
            )
