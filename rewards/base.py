"""Scores and rewards: each number with the evidence it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from patchgym.sandbox import Flake, Outcome
from patchgym.sandbox.patch import Rung

from .tampering import TamperFinding

VerdictStatus = Literal["resolved", "unresolved", "unknown"]
VerdictEvidence = Literal[
    "report",
    "junit",
    "log",
    "answer",
    "not_taken",
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
    it was given by itself. `not_taken`: no component of the reward asked for a verdict."""
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
    loaded: tuple[str, ...] | None = None
    """Files that the diff changed and whose modules the tests' process had loaded, sorted; None
    when that is not known. Code under test has a hand in it, so it is no ground for a verdict."""
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
class Fault:
    """Something that a score rests on, for a person to look at."""

    message: str
    """One line."""
    path: str = ""
    """Relative to the repository; empty when it is about no file."""
    line: int | None = None
    """From 1, in the file as the diff leaves it; None when it is about no line of it."""


ScoreStatus = Literal["measured", "gated", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One component's number."""

    name: str
    value: float | None
    """In [0, 1]; higher is more of what the component measures. None when it was not measured."""
    weight: float
    """What the value is multiplied by in the reward; negative for penalties."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    """What the value was computed from, JSON types only."""
    status: ScoreStatus = "measured"
    """`gated`: what it depends on was not reached, so it was not measured and counts nothing.
    `unknown`: it could not be measured, see `detail`."""
    faults: tuple[Fault, ...] = ()
    """The places at fault, those that weigh most first."""
    detail: str = ""
    """Why it is unknown or gated, and what could not be looked at."""
    version: str = ""
    """Of the component, with its tools' where it has some: `1`, `1 ruff 0.17.6`."""
    seconds: float = 0.0
    """Wall seconds of measuring, waits included."""

    @property
    def contribution(self) -> float:
        """What it adds to a weighted sum."""
        return 0.0 if self.value is None else self.value * self.weight


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

    def score(self, name: str) -> Score | None:
        """The score of that name, if there is one."""
        return next((score for score in self.scores if score.name == name), None)

    @classmethod
    def of_answer(
        cls, value: float, *, resolved: bool, detail: str = "", seconds: float = 0.0
    ) -> Reward:
        """The reward of an environment without tests: `value` in [0, 1], checked by itself."""
        status: VerdictStatus = "resolved" if resolved else "unresolved"
        verdict = Verdict(status=status, evidence="answer", detail=detail, seconds=seconds)
        score = Score(name="answer", value=value, weight=1.0, evidence={"detail": detail})
        return cls(total=value, scores=(score,), verdict=verdict, seconds=seconds)

    @classmethod
    def unknown(cls, detail: str, *, scores: Sequence[Score] = (), seconds: float = 0.0) -> Reward:
        """The reward of what could not be scored, by no doing of the policy; `detail` says why."""
        verdict = Verdict(status="unknown", evidence="infra", detail=detail)
        return cls(total=None, scores=tuple(scores), verdict=verdict, seconds=seconds)

    @property
    def resolved(self) -> bool:
        """All FAIL_TO_PASS pass and all PASS_TO_PASS still pass."""
        return self.verdict.status == "resolved"
