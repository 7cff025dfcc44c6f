"""Scores and rewards: each number with the evidence it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from patchgym.datasets.task import Task
from patchgym.sandbox import Flake, Outcome
from patchgym.sandbox.patch import Rung

from .tampering import TamperFinding

VerdictStatus = Literal["resolved", "unresolved", "unknown"]
VerdictEvidence = Literal[
    "report",
    "junit",
    "log",
    "answer",
    "empty_patch",
    "patch_refused",
    "tampering",
    "flaky",
    "inconsistent",
    "infra",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the trusted tests say of a diff, in a fresh sandbox."""

    status: VerdictStatus
    evidence: VerdictEvidence
    """What the status rests on. `report`, `junit`, `log`: a test report, by its kind, with which
    the exit code agrees; `inconsistent`: it does not. `flaky`: nothing but flaky FAIL_TO_PASS tests
    stands in the way, so the status is unknown. `answer`: an environment without tests checked what
    it was given by itself."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Outcome of every FAIL_TO_PASS and PASS_TO_PASS id; empty when no test ran."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Failure text by test id."""
    flaky: Mapping[str, Flake] = field(default_factory=dict)
    """Tests set aside because they passed in some runs of this state and not in others, or are
    known to; they neither earn nor cost."""
    tampering: tuple[TamperFinding, ...] = ()
    """What the diff does to tests, test configuration and the test framework. One that
    `disqualifies` makes the verdict unresolved."""
    restored: tuple[str, ...] = ()
    """Trusted files that the diff had changed and that were put back, sorted."""
    rung: Rung | None = None
    """How lenient git had to be with the diff."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds by phase: lease, checkout, patch, inspect, tests, reruns."""
    exit_code: int | None = None
    """Of the first test run."""
    log: str = ""
    """What the test run printed, shortened; for people, never for verdicts."""
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

    @classmethod
    def of_answer(
        cls, value: float, *, resolved: bool, detail: str = "", seconds: float = 0.0
    ) -> Reward:
        """The reward of an environment without tests: `value` in [0, 1], checked by itself."""
        status: VerdictStatus = "resolved" if resolved else "unresolved"
        verdict = Verdict(status=status, evidence="answer", detail=detail, seconds=seconds)
        score = Score(name="answer", value=value, weight=1.0, evidence={"detail": detail})
        return cls(total=value, scores=(score,), verdict=verdict, seconds=seconds)

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
