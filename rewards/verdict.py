"""A verdict on a diff: a fresh sandbox, the base commit, the diff alone, trusted tests on top."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task
from patchgym.sandbox import (
    PatchError,
    Pool,
    Sandbox,
    SandboxError,
    TestReport,
    run_tests,
)

from .base import Verdict, VerdictEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """How verdicts are taken."""

    repositories: Path = field(default_factory=repositories_dir)
    """Folder for the materialized bundled repositories."""
    tests_timeout: float = 20.0
    """Seconds for the whole test run; past it the tests that did not finish are `timeout`."""
    lease_timeout: float = 120.0
    """Seconds to wait for a sandbox."""
    attempts: int = 2
    """Fresh sandboxes to try before an infrastructure failure makes the verdict unknown."""


async def judge(task: Task, diff: bytes, pool: Pool, config: JudgeConfig) -> Verdict:
    """The verdict on `diff`; an infrastructure failure ends as `unknown`, never as an exception."""
    if not diff.strip():
        # Validation showed that the base commit fails FAIL_TO_PASS: there is nothing to run.
        return Verdict(status="unresolved", evidence="empty_patch")
    failure = ""
    for _ in range(config.attempts):
        try:
            return await _attempt(task, diff, pool, config)
        except SandboxError as error:
            failure = f"{type(error).__name__}: {error}"
    return Verdict(status="unknown", evidence="infra", detail=failure)


async def _attempt(task: Task, diff: bytes, pool: Pool, config: JudgeConfig) -> Verdict:
    root = await anyio.to_thread.run_sync(materialize, task, config.repositories)
    async with pool.lease(timeout=config.lease_timeout) as sandbox:
        started = time.monotonic()
        await sandbox.checkout(root, task.base_commit)
        try:
            await sandbox.apply_patch(diff)
        except PatchError as error:
            return Verdict(
                status="unresolved",
                evidence="patch_refused",
                detail=str(error),
                seconds=time.monotonic() - started,
            )
        await _restore_tests(task, sandbox)
        report = await run_tests(
            sandbox,
            test_ids=(*task.fail_to_pass, *task.pass_to_pass),
            timeout=config.tests_timeout,
            lean=task.files is not None,  # a real repository may need pytest's every plugin
        )
        return _verdict(report, time.monotonic() - started)


async def _restore_tests(task: Task, sandbox: Sandbox) -> None:
    if not task.test_files:
        return
    command = ["git", "checkout", "--quiet", "HEAD", "--", *task.test_files]
    result = await sandbox.run(command, timeout=30)
    if result.exit_code != 0:
        raise SandboxError(
            f"{task.id}: the trusted tests could not be put back: {result.stderr.text().strip()}"
        )


def _verdict(report: TestReport, seconds: float) -> Verdict:
    passed = all(outcome == "passed" for outcome in report.outcomes.values())
    evidence: VerdictEvidence = "report" if report.consistent else "inconsistent"
    return Verdict(
        status="resolved" if passed and report.consistent else "unresolved",
        evidence=evidence,
        outcomes=report.outcomes,
        messages=report.messages,
        seconds=seconds,
    )
