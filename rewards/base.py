"""Scores and rewards: each number with the evidence it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from patchgym.datasets.task import Task
from patchgym.sandbox import Outcome

VerdictStatus = Literal["resolved", "unresolved", "unknown"]
VerdictEvidence = Literal["report", "empty_patch", "patch_refused", "inconsistent", "infra"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the trusted tests say of a diff, in a fresh sandbox."""

    status: VerdictStatus
    evidence: VerdictEvidence
    """`report`: tests ran and the exit code agrees. `inconsistent`: they ran and it does not."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Outcome of every FAIL_TO_PASS and PASS_TO_PASS id; empty when no test ran."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Failure text by test id."""
    detail: str = ""
    """Why the patch was refused, or what failed in the infrastructure."""
    seconds: float = 0.0
    """Wall seconds, lease wait left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One component's number."""

    name: str
    value: float
    """In [0, 1]; higher is more of what the component measures."""
    weight: float
    """What the value is multiplied by in the reward; negative for penalties."""
    evidence: Mapping[str, object]
    """What the value was computed from, JSON types only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The weighted total of a trajectory, or `None` when it is not known."""

    total: float | None
    """None after an infrastructure failure: unknown is never zero (rule 17)."""
    scores: tuple[Score, ...]
    verdict: Verdict
    seconds: float = 0.0
    """Wall seconds from pick-up to finish."""
    shared: bool = False
    """The verdict was taken from an identical patch of the same task."""

    @property
    def resolved(self) -> bool:
        """All FAIL_TO_PASS pass and all PASS_TO_PASS still pass."""
        return self.verdict.status == "resolved"


class Component(Protocol):
    """One part of the reward; pure, so that a stored trajectory can be scored again."""

    name: str

    def score(self, task: Task, diff: bytes, verdict: Verdict) -> tuple[float, dict[str, object]]:
        """Value in [0, 1] and its evidence."""
        ...
