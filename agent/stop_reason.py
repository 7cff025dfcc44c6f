"""Why a rollout ended, and what each reason does to training: one table instead of scattered ifs.

Compact filtering (DeepSWE, 2025) keeps trajectories that ended for outside reasons out of the loss.
Here they also stay out of the baseline: a masked member that still moves the baseline shifts the
advantage of every sibling.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

StopReason = Literal[
    "solved",
    "submitted",
    "context_limit",
    "deadline",
    "policy_failed",
    "sandbox_failed",
    "scoring_failed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What one stop reason means for the group it happened in."""

    in_baseline: bool
    """Its reward takes part in the group's baseline."""
    in_loss: bool
    """Its sampled tokens take part in the loss."""
    retried: bool
    """The same member is rolled out again, under a fresh random stream."""
    meaning: str
    """One line for people."""


_LEARNS = {"in_baseline": True, "in_loss": True, "retried": False}
_FILTERED = {"in_baseline": False, "in_loss": False, "retried": False}
_INFRA = {"in_baseline": False, "in_loss": False, "retried": True}

STOP_RULES = MappingProxyType(
    {
        "solved": StopRule(**_LEARNS, meaning="the tests passed in the rollout's own sandbox"),
        "submitted": StopRule(**_LEARNS, meaning="the answer of the last allowed turn"),
        "context_limit": StopRule(**_FILTERED, meaning="the next turn would not fit the context"),
        "deadline": StopRule(**_FILTERED, meaning="the rollout's own time limit passed"),
        "policy_failed": StopRule(**_INFRA, meaning="the sampler failed"),
        "sandbox_failed": StopRule(**_INFRA, meaning="the sandbox failed, not the command in it"),
        "scoring_failed": StopRule(**_INFRA, meaning="the score is unknown: its sandbox failed"),
    }
)

assert set(STOP_RULES) == set(get_args(StopReason))


def rule_for(reason: StopReason) -> StopRule:
    """The row of the table for `reason`."""
    return STOP_RULES[reason]
