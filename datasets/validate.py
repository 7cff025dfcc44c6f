"""Is a task worth running? Gold must pass every test, and the empty patch fail what it should.

Each patch gets a fresh sandbox: the base commit, the patch, the trusted tests put back over it,
then the tests; as often as asked, because a flaky test shows itself only by repeating.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from patchgym.sandbox import PatchError, Pool, SandboxError, TestReport

from .task import Task
from .trial import Trial, TrialConfig

ATTEMPTS = 2  # sandboxes to try for one run before a failure of theirs is raised


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The answer for one task."""

    ok: bool
    reason: str = ""
    """With `ok` false: what is wrong and what to do, in one line."""


async def validate(
    task: Task,
    pool: Pool,
    *,
    repeats: int = 1,
    config: TrialConfig | None = None,
) -> Validation:
    """Run the empty and the gold patch `repeats` times each.

    Raises TaskError when the repository can't be used, SandboxError when a sandbox fails: neither
    says anything of the task's tests.
    """
    trial = await Trial.of(task, pool, config or TrialConfig())
    for number in range(1, repeats + 1):
        problem = _empty_problem(task, await _run(trial, b""))
        if not problem:
            try:
                problem = _gold_problem(task, await _run(trial, task.gold_patch.encode()))
            except PatchError as error:
                problem = f"the gold patch does not apply ({error}): mend gold_patch"
        if problem:
            # A first run that was fine means that the task is not the same each time.
            flaky = f" (run {number} of {repeats}; earlier ones were fine: flaky)"
            suffix = flaky if number > 1 else ""
            return Validation(ok=False, reason=f"{task.id}: {problem}{suffix}")
    return Validation(ok=True)


async def validate_all(
    tasks: Sequence[Task],
    pool: Pool,
    found: Callable[[Task, Validation], None],
    *,
    jobs: int,
    repeats: int = 1,
    config: TrialConfig | None = None,
) -> None:
    """Validate every task, `jobs` at once; `found` is called with each answer as it comes."""
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:  # shared: each worker takes the next one
            found(task, await validate(task, pool, repeats=repeats, config=config))

    async with anyio.create_task_group() as workers:
        for _ in range(jobs):
            workers.start_soon(work)


async def _run(trial: Trial, patch: bytes) -> TestReport:
    """A run in a fresh sandbox, and again in another when the sandbox failed."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await _once(trial, patch)
        except SandboxError:
            continue
    return await _once(trial, patch)


async def _once(trial: Trial, patch: bytes) -> TestReport:
    async with trial.prepared(patch) as prepared:
        return await prepared.run()


def _empty_problem(task: Task, report: TestReport) -> str:
    for test in task.fail_to_pass:
        outcome = report.outcomes[test]
        if outcome == "passed":
            return (
                f"FAIL_TO_PASS {test} already passes on the base commit: "
                "take it out of fail_to_pass, or name a base commit that has the bug"
            )
        # What did not run has not failed.
        if outcome in ("skipped", "not_run"):
            return f"FAIL_TO_PASS {test} is {outcome} on the base commit: {_missing(report)}"
    for test in task.pass_to_pass:
        if report.outcomes[test] != "passed":
            return (
                f"PASS_TO_PASS {test} is {report.outcomes[test]} on the base commit"
                f"{_because(report, test)}: take it out of pass_to_pass"
            )
    return ""


def _gold_problem(task: Task, report: TestReport) -> str:
    for test in task.tests:
        outcome = report.outcomes[test]
        if outcome == "not_run":
            return f"{test} is not_run with the gold patch: {_missing(report)}"
        if outcome != "passed":
            return (
                f"{test} is {outcome} with the gold patch{_because(report, test)}: "
                "mend gold_patch or the test"
            )
    if not report.consistent:
        return (
            f"the tests pass with the gold patch but the run ends with exit code "
            f"{report.exit_code}: mend the tests"
        )
    return ""


def _missing(report: TestReport) -> str:
    if report.timed_out:
        return f"the run was stopped after {report.duration:.0f} s: raise the timeout, or name less"
    return "correct its name (pytest --collect-only lists them) or what it needs to run"


def _because(report: TestReport, test: str) -> str:
    message = " ".join(report.messages.get(test, "").split())
    return f" ({message})" if message else ""
