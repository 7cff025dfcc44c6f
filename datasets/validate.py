"""Is a task worth running? Gold must pass every test, and the empty patch fail what it should.

Each patch gets a fresh sandbox: the base commit, the patch, the tests; as often as asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from patchgym.sandbox import PatchError, Pool, TestReport, run_tests

from .cache import repositories_dir
from .repository import materialize
from .task import Task


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
    timeout: float = 60.0,
    lease_timeout: float = 120.0,
    root: Path | None = None,
) -> Validation:
    """Run the empty and the gold patch `repeats` times each, `timeout` seconds a run.

    Raises TaskError when the repository can't be used, SandboxError when a sandbox fails: neither
    says anything of the task's tests.
    """
    folder = await anyio.to_thread.run_sync(materialize, task, root or repositories_dir())
    for _ in range(repeats):
        for patch, judge in ((b"", _empty_problem), (task.gold_patch.encode(), _gold_problem)):
            try:
                report = await _run(task, patch, pool, folder, timeout, lease_timeout)
            except PatchError as error:
                return _invalid(task, f"the gold patch does not apply: {error}; mend gold_patch")
            problem = judge(task, report)
            if problem:
                return _invalid(task, problem)
    return Validation(ok=True)


async def validate_all(
    tasks: Sequence[Task],
    pool: Pool,
    found: Callable[[Task, Validation], None],
    *,
    jobs: int,
    repeats: int = 1,
    timeout: float = 60.0,
) -> None:
    """Validate every task, `jobs` at once; `found` is called with each answer as it comes."""
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:  # shared: each worker takes the next one
            found(task, await validate(task, pool, repeats=repeats, timeout=timeout))

    async with anyio.create_task_group() as workers:
        for _ in range(jobs):
            workers.start_soon(work)


async def _run(
    task: Task, patch: bytes, pool: Pool, folder: Path, timeout: float, lease_timeout: float
) -> TestReport:
    async with pool.lease(timeout=lease_timeout) as sandbox:
        await sandbox.checkout(folder, task.base_commit)
        if patch:
            await sandbox.apply_patch(patch)
        return await run_tests(sandbox, test_ids=task.tests, timeout=timeout)


def _empty_problem(task: Task, report: TestReport) -> str:
    for test in task.fail_to_pass:
        if report.outcomes[test] == "passed":
            return (
                f"FAIL_TO_PASS {test} already passes on the base commit: "
                "take it out of fail_to_pass, or name a base commit that has the bug"
            )
    for test in task.pass_to_pass:
        if report.outcomes[test] != "passed":
            return (
                f"PASS_TO_PASS {test} is {report.outcomes[test]} on the base commit"
                f"{_because(report, test)}: take it out of pass_to_pass"
            )
    return ""


def _gold_problem(task: Task, report: TestReport) -> str:
    for test in task.tests:
        if report.outcomes[test] != "passed":
            return (
                f"{test} is {report.outcomes[test]} with the gold patch{_because(report, test)}: "
                "mend gold_patch or the test"
            )
    if not report.consistent:
        return (
            f"the tests pass with the gold patch but the run ends with exit code "
            f"{report.exit_code}: mend the tests"
        )
    return ""


def _because(report: TestReport, test: str) -> str:
    message = report.messages.get(test, "")
    return f" ({message})" if message else ""


def _invalid(task: Task, problem: str) -> Validation:
    return Validation(ok=False, reason=f"{task.id}: {problem}")
