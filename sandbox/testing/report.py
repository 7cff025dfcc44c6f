"""What became of the tests of a run: outcomes, every single run, flake rates, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["passed", "failed", "error", "skipped", "timeout", "flaky", "not_run"]
OUTCOMES: tuple[Outcome, ...] = (
    "passed", "failed", "error", "skipped", "timeout", "flaky", "not_run",
)  # fmt: skip
WORST: tuple[Outcome, ...] = ("not_run", "timeout", "error", "failed", "flaky", "skipped", "passed")
TestEvidence = Literal["report", "junit", "log"]
Z95 = 1.959963984540054


def wilson(rate: float, samples: float, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval (1927) for a `rate` seen over `samples`, which may be fractional."""
    if samples <= 0:
        return 0.0, 1.0
    centre = rate + z * z / (2 * samples)
    spread = z * math.sqrt(rate * (1 - rate) / samples + z * z / (4 * samples * samples))
    scale = 1 + z * z / samples
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """One test, run once."""

    __test__ = False  # not a test, whatever its name says to pytest

    outcome: Outcome
    message: str = ""
    """For a test that did not pass: the failing line and the values, short."""
    seconds: float | None = None
    """Wall-clock seconds; None when the runner does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flake:
    """A test that passed in some runs of one state and did not in others."""

    runs: int
    failures: int
    """Runs that did not pass."""

    @property
    def rate(self) -> float:
        """Share of the runs that did not pass."""
        return self.failures / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """95% Wilson interval of the rate. Runs made because a first one failed are among them."""
        return wilson(self.rate, self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """Something seen in the test process that honest code does not do."""

    rule: str
    """Short name, such as `framework-patched` or `canary-passed`."""
    message: str
    """One line: what was seen."""
    path: str | None = None
    """File of the code that did it, relative to the workdir, where that is known."""
    line: int | None = None
    """1-based line in that file."""
    certain: bool = True
    """False for what honest code may do as well, such as walking the stack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """What became of every test that was asked for."""

    __test__ = False

    outcomes: Mapping[str, Outcome]
    """By test id; every asked id is there. `flaky`: passed in one run and not in another."""
    messages: Mapping[str, str]
    """By test id, for tests that did not pass: the failing line and the values, short."""
    runs: Mapping[str, tuple[TestRun, ...]] = field(default_factory=dict)
    """Every run of each asked test, in order: the first one, then the reruns."""
    evidence: TestEvidence = "report"
    """`report`: our own records on a descriptor apart; `junit`: the runner's XML file; `log`: read
    from what was printed, the weakest."""
    exit_code: int | None
    """The first run's; None when it was killed."""
    timed_out: bool
    """The whole run's time was up."""
    duration: float
    """Wall-clock seconds, reruns included."""
    cpu_seconds: float
    """CPU seconds of the sandbox during the run."""
    consistent: bool
    """The run came to its end, and its exit code agrees with the outcomes."""
    problem: str = ""
    """Without `consistent`: what does not agree, in one line."""
    suspicions: tuple[Suspicion, ...] = ()
    """What the guard in the test process saw."""
    loaded: frozenset[str] | None = None
    """The repository's files whose modules the first run had loaded at its end: what the tests can
    have touched in that process. None when the runner is not one of Python's, or did not end."""
    others: Mapping[str, Outcome] = field(default_factory=dict)
    """Tests that ran without being asked for, by id."""
    killed: int = 0
    """Processes killed when the time was up."""
    oom_killed: bool = False
    """The kernel killed a process for want of memory."""
    output: str
    """What was printed, shortened; for people, never for verdicts."""

    def all_passed(self, test_ids: Sequence[str]) -> bool:
        """Every one of these passed, in a consistent run."""
        return self.consistent and all(self.outcomes.get(each) == "passed" for each in test_ids)

    @property
    def flakes(self) -> dict[str, Flake]:
        """The tests that came out in more than one way, by id."""
        return {
            test: flake_of(runs)
            for test, runs in self.runs.items()
            if self.outcomes.get(test) == "flaky"
        }


def flake_of(runs: Sequence[TestRun]) -> Flake:
    """How often these runs of one test did not pass; at least one run."""
    return Flake(runs=len(runs), failures=sum(run.outcome != "passed" for run in runs))


def settle(runs: Sequence[TestRun]) -> Outcome:
    """The outcome of a test from all its runs: `flaky` when it passed in one and not in another.

    Runs that did not reach it say nothing, unless none did.
    """
    outcomes: list[Outcome] = [run.outcome for run in runs if run.outcome != "not_run"] or [
        "not_run"
    ]
    if "passed" in outcomes and any(one != "passed" for one in outcomes):
        return "flaky"
    return min(outcomes, key=WORST.index)
