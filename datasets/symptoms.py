"""What several runs of the same tests tell about them: flaky, hanging, slow, networked, ordered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchgym.sandbox import Flake, TestReport

from .task import Task

SLOW = 10.0  # seconds of one test
NETWORK = re.compile(
    r"gaierror|Name or service not known|Temporary failure in name resolution|"
    r"Network is unreachable|NameResolutionError|Max retries exceeded|getaddrinfo|"
    r"Could not resolve host|\bENOTFOUND\b|\bEAI_AGAIN\b|no such host",
    re.IGNORECASE,
)

SymptomKind = Literal["hangs", "network", "order", "slow", "leak"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """Something odd about a test, or about the task."""

    kind: SymptomKind
    """`hangs`: its time was up. `network`: its failure is one to reach another machine. `order`: it
    fails when the tests run in another order. `slow`: ten seconds or more. `leak`: the statement
    gives the fix away."""
    test: str
    """Its id; empty for the task as a whole."""
    detail: str
    """In one line."""


def flaky_tests(
    task: Task, empty: Sequence[TestReport], gold: Sequence[TestReport]
) -> dict[str, Flake]:
    """Tests that passed in some runs of the same patch and not in others."""
    found = {}
    for test in task.tests:
        for reports in (gold, empty):
            failures = sum(report.outcomes[test] != "passed" for report in reports)
            if 0 < failures < len(reports):
                found[test] = Flake(runs=len(reports), failures=failures)
                break
    return found


def symptoms_of(
    task: Task, gold: Sequence[TestReport], shuffled: TestReport | None
) -> tuple[Symptom, ...]:
    """What the gold patch's runs, and one in another order, show; each test once a kind."""
    found: dict[tuple[str, str], Symptom] = {}
    for report in gold:
        for test in task.tests:
            for symptom in _of_one(report, test):
                found.setdefault((symptom.kind, test), symptom)
    if shuffled is not None and gold:
        for test in task.tests:
            steady = all(report.outcomes[test] == "passed" for report in gold)
            outcome = shuffled.outcomes[test]
            if steady and outcome not in ("passed", "not_run"):
                detail = f"{outcome} in another order: {_line(shuffled, test)}"
                found["order", test] = Symptom(kind="order", test=test, detail=detail)
    return tuple(found.values())


def _of_one(report: TestReport, test: str) -> list[Symptom]:
    found = []
    if report.outcomes[test] == "timeout":
        found.append(Symptom(kind="hangs", test=test, detail=_line(report, test)))
    elif NETWORK.search(report.messages.get(test, "")):
        found.append(Symptom(kind="network", test=test, detail=_line(report, test)))
    slowest = max((run.seconds or 0.0 for run in report.runs.get(test, ())), default=0.0)
    if slowest >= SLOW:
        found.append(Symptom(kind="slow", test=test, detail=f"{slowest:.0f} s"))
    return found


def _line(report: TestReport, test: str) -> str:
    return " ".join(report.messages.get(test, "no message").split())
