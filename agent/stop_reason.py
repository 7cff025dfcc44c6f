"""Why a rollout ended, and what each reason does to training: one table instead of scattered ifs.

Compact filtering (DeepSWE, 2025) keeps trajectories that ended for outside reasons out of the loss.
Here they also stay out of the baseline: a masked member that still moves the baseline shifts the
advantage of every sibling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

StopReason = Literal[
    "solved",
    "submitted",
    "turn_limit",
    "context_limit",
    "deadline",
    "straggler",
    "policy_failed",
    "sandbox_failed",
    "environment_failed",
    "host_lost",
    "scoring_failed",
]

FailureKind = Literal["policy", "sandbox", "environment", "host", "scoring"]
"""What failures are counted by: each kind has a budget of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What one stop reason means for the group it happened in."""

    in_baseline: bool
    """Its reward takes part in the group's baseline."""
    in_loss: bool
    """Its sampled tokens take part in the loss."""
    retried: bool
    """The same member is rolled out again, under a fresh random stream."""
    refilled: bool
    """Its rollout slot takes the next piece of work at once, whatever becomes of the group."""
    scored: bool
    """A reward worker looks at what it left behind."""
    failure: FailureKind | None
    """The budget it is counted against; None for the policy's own doing."""
    meaning: str
    """One line for people."""


def _rule(
    meaning: str,
    *,
    learns: bool = False,
    retried: bool = False,
    failure: FailureKind | None = None,
) -> StopRule:
    return StopRule(
        in_baseline=learns,
        in_loss=learns,
        retried=retried,
        refilled=True,
        scored=learns,
        failure=failure,
        meaning=meaning,
    )


STOP_RULES: Mapping[StopReason, StopRule] = MappingProxyType(
    {
        "solved": _rule("the tests passed in the rollout's own sandbox", learns=True),
        "submitted": _rule("handed in, or the answer of the last allowed turn", learns=True),
        "turn_limit": _rule("the turns ran out in the middle of the work"),
        "context_limit": _rule("the next turn would not fit the context"),
        "deadline": _rule("a time limit of the rollout, or of a turn, passed"),
        "straggler": _rule(
            "cancelled for its group's sake; resumed as a partial one", retried=True
        ),
        "policy_failed": _rule("the sampler failed", retried=True, failure="policy"),
        "sandbox_failed": _rule(
            "the sandbox failed, not the command in it", retried=True, failure="sandbox"
        ),
        "environment_failed": _rule(
            "the environment raised, or a tool never answered", retried=True, failure="environment"
        ),
        "host_lost": _rule(
            "the machine that it ran on was lost, with all that it held",
            retried=True,
            failure="host",
        ),
        "scoring_failed": _rule(
            "the score is unknown: its sandbox failed", retried=True, failure="scoring"
        ),
    }
)

assert set(STOP_RULES) == set(get_args(StopReason))


def rule_for(reason: StopReason) -> StopRule:
    """The row of the table for `reason`."""
    return STOP_RULES[reason]
