"""A verdict on a diff: a fresh sandbox, the base commit, the diff alone, trusted tests on top.

Resolved means that every FAIL_TO_PASS test passes and every PASS_TO_PASS test still does, that the
report and the exit code agree, and that the diff does not tamper with how it is judged. Flaky tests
are set aside; where only they stand between a diff and its success, the verdict is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio.to_thread

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.task import Task
from patchgym.datasets.trial import Change, Images, Prepared, Trial, TrialConfig
from patchgym.sandbox import (
    Flake,
    Outcome,
    PatchError,
    PatchgymError,
    Pool,
    Suspicion,
    TestReport,
    TestRun,
)
from patchgym.sandbox.testing import settle

from .base import Verdict, VerdictEvidence, VerdictStatus
from .tampering import FileChange, TamperFinding, inspect_changes

LOG = 1 << 16  # characters of a run's output that a verdict keeps
FAILING: tuple[Outcome, ...] = ("failed", "error", "timeout", "not_run")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """How verdicts are taken."""

    repositories: Path = field(default_factory=repositories_dir)
    """Folder for the materialized bundled repositories."""
    images: Images | None = None
    """Where tasks' images come from; None: all run in the pool's own."""
    tests_timeout: float | None = None
    """Seconds for the whole test run, past which the tests that did not finish are `timeout`; None:
    the environment's, or 60."""
    per_test_timeout: float | None = None
    """Seconds for each test."""
    lease_timeout: float = 120.0
    """Seconds to wait for a sandbox."""
    attempts: int = 2
    """Fresh sandboxes to try before an infrastructure failure makes the verdict unknown."""
    reruns: int = 1
    """How often failing tests are run again in the same sandbox, put back to its clean state."""
    fresh_reruns: int = 0
    """How often tests that still fail are run again, each time in a fresh sandbox."""

    def __post_init__(self) -> None:
        for name in ("reruns", "fresh_reruns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be >= 0")
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}: it must be >= 1")

    @property
    def trial(self) -> TrialConfig:
        """What concerns the test runs."""
        return TrialConfig(
            repositories=self.repositories,
            images=self.images,
            timeout=self.tests_timeout,
            per_test_timeout=self.per_test_timeout,
            lease_timeout=self.lease_timeout,
        )


async def judge(task: Task, diff: bytes, pool: Pool, config: JudgeConfig) -> Verdict:
    """The verdict on `diff`; an infrastructure failure ends as `unknown`, never as an exception."""
    if not diff.strip():
        # Validation showed that the base commit fails FAIL_TO_PASS: there is nothing to run.
        return Verdict(status="unresolved", evidence="empty_patch")
    return await judge_tree(task, diff, pool, config)


async def judge_tree(task: Task, diff: bytes, pool: Pool, config: JudgeConfig) -> Verdict:
    """As `judge`, but an empty diff is run as well: what the tests say of the base commit."""
    failure = ""
    for _ in range(config.attempts):
        try:
            return await _attempt(task, diff, pool, config)
        except PatchError as error:
            return Verdict(status="unresolved", evidence="patch_refused", detail=str(error))
        except PatchgymError as error:
            failure = f"{type(error).__name__}: {error}"
    return Verdict(status="unknown", evidence="infra", detail=failure)


async def _attempt(task: Task, diff: bytes, pool: Pool, config: JudgeConfig) -> Verdict:
    trial = await Trial.of(task, pool, config.trial)
    async with trial.prepared(diff) as prepared:
        report = await prepared.run(reruns=config.reruns)
    runs = {test: list(tried) for test, tried in report.runs.items()}
    timings = dict(prepared.timings)
    suspicions = list(report.suspicions)
    for _ in range(config.fresh_reruns if report.consistent else 0):
        again = [test for test, tried in runs.items() if settle(tried) in FAILING]
        if not again:
            break
        async with trial.prepared(diff) as fresh:
            more = await fresh.run(again)
        suspicions += more.suspicions
        timings["fresh_reruns"] = timings.get("fresh_reruns", 0.0) + sum(fresh.timings.values())
        for test in again:
            believed = more.consistent or more.outcomes[test] != "passed"
            runs[test] += more.runs[test] if believed else (TestRun(outcome="error"),)
    # Parsing big files takes long enough to hold up the event loop.
    inspected = await anyio.to_thread.run_sync(_inspect, task, diff, prepared)
    findings = (*inspected, *_suspected(suspicions, prepared.changes))
    verdict = conclude(task, {test: settle(tried) for test, tried in runs.items()}, runs,
                       report=report, tampering=tuple(dict.fromkeys(findings)))  # fmt: skip
    return replace(
        verdict,
        loaded=_loaded(report, prepared.changes),
        restored=prepared.restored,
        rung=prepared.applied.rung,
        timings=timings,
        seconds=sum(timings.values()) - timings.get("lease", 0.0),
    )


def _loaded(report: TestReport, changes: Sequence[Change]) -> tuple[str, ...] | None:
    """The changed files among those that the tests' process had loaded."""
    if report.loaded is None:
        return None
    return tuple(sorted(change.path for change in changes if change.path in report.loaded))


def conclude(
    task: Task,
    outcomes: Mapping[str, Outcome],
    runs: Mapping[str, Sequence[TestRun]],
    *,
    report: TestReport,
    tampering: tuple[TamperFinding, ...] = (),
) -> Verdict:
    """From outcomes to a verdict; pure."""
    flaky = _set_aside(task, outcomes, runs)
    status, evidence = _status(task, outcomes, flaky, report, tampering)
    return Verdict(
        status=status,
        evidence=evidence,
        outcomes=outcomes,
        messages=report.messages,
        flaky=flaky,
        tampering=tampering,
        detail=report.problem,
        exit_code=report.exit_code,
        log=report.output if len(report.output) <= LOG else report.output[-LOG:],
    )


def _set_aside(
    task: Task, outcomes: Mapping[str, Outcome], runs: Mapping[str, Sequence[TestRun]]
) -> dict[str, Flake]:
    """Tests seen to be flaky just now, and those known to be."""
    found = {}
    for test in task.tests:
        if outcomes.get(test) == "flaky" or test in task.flaky:
            tried = runs.get(test, ())
            failures = sum(run.outcome != "passed" for run in tried)
            found[test] = Flake(runs=len(tried), failures=failures)
    return found


def _status(
    task: Task,
    outcomes: Mapping[str, Outcome],
    flaky: Mapping[str, Flake],
    report: TestReport,
    tampering: Sequence[TamperFinding],
) -> tuple[VerdictStatus, VerdictEvidence]:
    if any(finding.disqualifies for finding in tampering):
        return "unresolved", "tampering"
    if not report.consistent:
        return "unresolved", "inconsistent"
    if any(outcomes.get(test) != "passed" for test in task.tests if test not in flaky):
        return "unresolved", report.evidence
    if any(test in flaky and test not in task.flaky for test in task.fail_to_pass) or all(
        test in flaky for test in task.fail_to_pass
    ):
        return "unknown", "flaky"
    return "resolved", report.evidence


def _inspect(task: Task, diff: bytes, prepared: Prepared) -> tuple[TamperFinding, ...]:
    moved = _renames(diff)
    changes = [
        FileChange(
            path=change.path,
            old_path=moved.get(change.path),
            before=change.before,
            after=change.after,
            mode=change.mode or "100644",
        )
        for change in prepared.changes
    ]
    return inspect_changes(changes, test_files=tuple(prepared.trial.trusted), tests=task.tests)


def _renames(diff: bytes) -> dict[str, str]:
    """New path -> old path, as the diff says."""
    text = diff.decode("utf-8", "surrogateescape")
    pairs = re.findall(r"(?m)^rename from (.+)\nrename to (.+)$", text)
    return {new: old for old, new in pairs}


def _suspected(suspicions: Sequence[Suspicion], changes: Sequence[Change]) -> list[TamperFinding]:
    """What the guard saw the diff's own lines do; what the repository did before is its own."""
    by_path = {change.path: change for change in changes}
    found = []
    for suspicion in suspicions:
        if suspicion.path is not None and not _wrote(by_path.get(suspicion.path), suspicion.line):
            continue
        found.append(
            TamperFinding(
                rule=suspicion.rule,
                path=suspicion.path or "",
                line=suspicion.line,
                message=suspicion.message,
                disqualifies=suspicion.certain,
            )
        )
    return found


def _wrote(change: Change | None, line: int | None) -> bool:
    """Whether the diff put that line there."""
    if change is None or change.after is None:
        return False
    lines = change.after.splitlines()
    if line is None or not 0 < line <= len(lines):
        return True
    return lines[line - 1] not in (change.before or b"").splitlines()
