"""A candidate's tests without and with its fix, as often as asked, each run in a fresh sandbox.

with the fix, once ──► nothing passes: dropped        what passes is then asked for by name
without it, once   ──► nothing fails: dropped         so that the report says how it fails
the rest of both   ──► lists of what comes out the same each time
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchgym.datasets.task import Task
from patchgym.datasets.trial import Trial
from patchgym.sandbox import PatchError, SandboxError, SandboxUsageError, TestReport

from .split import Dropped
from .statement import steady

ATTEMPTS = 2  # sandboxes to try for one run before the machine is to blame
FAILS = ("failed", "error", "timeout")
"""What a test must do without the fix; one that did not run, or was skipped, has not failed."""
NETWORK = re.compile(
    r"\bgaierror\b|Name or service not known|Temporary failure in name resolution|"
    r"Network is unreachable|NameResolutionError|Max retries exceeded with url|"
    r"Could not resolve host|\bENOTFOUND\b|\bEAI_AGAIN\b|no such host"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """What the runs of one candidate say of its tests."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    flaky: Mapping[str, float] = field(default_factory=dict)
    """Share of the runs that did not pass, of those that came out both ways with one patch."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """How each of FAIL_TO_PASS fails; nothing where that differs from run to run."""
    before: Mapping[str, int] = field(default_factory=dict)
    """How many of FAIL_TO_PASS fail in which way without the fix."""


_Outcomes = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run of a candidate's test files."""

    report: TestReport
    outcomes: _Outcomes
    """Every single test's, asked for or not."""


async def try_candidate(trial: Trial, repeats: int) -> Lists | Dropped:
    """Run the task's test files, `repeats` times with the fix and as often without.

    Raises SandboxError when the machine fails, TaskError when the task can't be used.
    """
    gold = trial.task.gold_patch.encode()
    try:
        after = [await run_once(trial, gold, ())]
    except PatchError as error:
        return Dropped(reason="patch-refused", detail=_line(str(error)))
    except SandboxUsageError as error:
        return Dropped(reason="command", detail=_line(str(error)))
    passing = sorted(test for test, outcome in after[0].outcomes.items() if outcome == "passed")
    if not _usable(after[0]) or not passing:
        return _dropped(after[0])
    before = [await run_once(trial, b"", passing)]
    if not any(before[0].outcomes.get(test) in FAILS for test in passing):
        return _unbroken(before[0], passing)
    for _ in range(repeats - 1):
        after.append(await run_once(trial, gold, ()))
        before.append(await run_once(trial, b"", passing))
    broken = next((run for run in after if not _usable(run)), None)
    return _dropped(broken) if broken is not None else lists_of(before, after)


async def run_once(trial: Trial, patch: bytes, tests: Sequence[str]) -> Ran:
    """One run, in another sandbox where the first one fails; of whole files without `tests`."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await _run(trial, patch, tests)
        except SandboxError:
            continue
    return await _run(trial, patch, tests)


async def _run(trial: Trial, patch: bytes, tests: Sequence[str]) -> Ran:
    files = _whole(trial.task)
    async with trial.prepared(patch) as prepared:
        report = await prepared.run(tests or files)
    single = {name: each for name, each in report.outcomes.items() if name not in files}
    return Ran(report=report, outcomes={**report.others, **single})


def _whole(task: Task) -> tuple[str, ...]:
    """What to ask for to get all tests of the files; a command of its own needs no telling."""
    environment = task.environment
    named = environment is not None and environment.test_command
    return () if named else task.test_files


def _usable(ran: Ran) -> bool:
    return ran.report.consistent and not ran.report.timed_out


def lists_of(before: Sequence[Ran], after: Sequence[Ran]) -> Lists | Dropped:
    """The lists, from at least one run of each state."""
    with_fix = [ran.outcomes for ran in after]
    without = [ran.outcomes for ran in before]
    # a test that is not in every run has a name that differs from run to run, as with random ids
    names = sorted(set(with_fix[0]).intersection(*with_fix[1:]))
    flaky = {name: rate for name in names if (rate := _flaky_rate(name, with_fix, without))}
    steady_ = [name for name in names if name not in flaky and _all(with_fix, name, ("passed",))]
    fixed = [name for name in steady_ if _all(without, name, FAILS)]
    if not fixed:
        if flaky:
            return Dropped(reason="flaky", detail=", ".join(sorted(flaky)[:3]))
        return Dropped(reason="not-broken", detail="no test fails each time without the fix")
    kept = [name for name in steady_ if _all(without, name, ("passed",))]
    return Lists(
        fail_to_pass=tuple(fixed),
        pass_to_pass=tuple(kept),
        flaky=flaky,
        failures={name: _failure(name, before) for name in fixed},
        before=dict(sorted(Counter(without[0][name] for name in fixed).items())),
    )


def _all(runs: Sequence[_Outcomes], name: str, wanted: Sequence[str]) -> bool:
    return all(outcomes.get(name) in wanted for outcomes in runs)


def _flaky_rate(name: str, with_fix: Sequence[_Outcomes], without: Sequence[_Outcomes]) -> float:
    """Share of the runs that did not pass, with the fix where it shows there; 0 when steady."""
    for runs in (with_fix, without):
        missed = sum(outcomes.get(name) != "passed" for outcomes in runs)
        if 0 < missed < len(runs):
            return round(missed / len(runs), 4)
    return 0.0


def _failure(name: str, before: Sequence[Ran]) -> str:
    told = {" ".join(steady(ran.report.messages.get(name, "")).split()) for ran in before}
    return told.pop() if len(told) == 1 else ""


def _dropped(ran: Ran) -> Dropped:
    """Why a run with the fix is of no use."""
    report = ran.report
    if report.timed_out:
        return Dropped(reason="timeout", detail=f"stopped after {report.duration:.0f} s")
    outcomes = Counter(ran.outcomes.values())
    if outcomes and not report.consistent:
        return Dropped(reason="unreliable", detail=_line(report.problem))
    if NETWORK.search(report.output):
        return Dropped(reason="network", detail=_last(report.output, NETWORK.search))
    if not outcomes:
        return Dropped(reason="no-tests-ran", detail=_last(report.output) or report.problem)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    return Dropped(reason="fails-with-fix", detail=f"{counts}: {_last(report.output)}")


def _unbroken(ran: Ran, passing: Sequence[str]) -> Dropped:
    missing = sum(ran.outcomes.get(test, "not_run") in ("not_run", "skipped") for test in passing)
    if missing == len(passing):
        detail = f"none of {missing} runs without the fix: {_last(ran.report.output)}"
        return Dropped(reason="not-broken", detail=detail)
    if missing:
        detail = f"of {len(passing)}, {missing} do not run without the fix, the others pass"
        return Dropped(reason="not-broken", detail=detail)
    return Dropped(reason="not-broken", detail=f"all {len(passing)} pass without the fix")


def _last(output: str, wanted: object = None) -> str:
    """The last line that tells something: of an error, or one that is `wanted`."""
    check = wanted if callable(wanted) else lambda line: "Error" in line or "error" in line
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if check(line)), lines[-1] if lines else "")
    return _line(found)


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
