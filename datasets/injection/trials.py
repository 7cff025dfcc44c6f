"""What tests make of a mutant: how many fail, and whether any hangs.

Tries share sandboxes: the mutated file is written, tests run, the file is put back. That is only to
find candidates; what becomes a task is validated in fresh sandboxes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Literal

from patchgym.sandbox import Sandbox, SandboxError, TestCommand, TestReport, run_tests

from .coverage import Survey
from .ground import Ground

MOST_TESTS = 200
"""Tests that run for one mutant, and so the most that its task names."""
FEWEST_TESTS = 20
"""With fewer that run the bug, others of the same files come along, where there are any."""
REUSE = 40  # mutants that one sandbox is used for
FIRST_TIME = 1_000_000_000  # a date for written files: each another one, so that none is cached

Fate = Literal["fit", "unseen", "too-many", "hung", "broken"]
"""`unseen`: no test fails. `broken`: tests were not found or not reached any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of one mutant."""

    fate: Fate
    failing: Mapping[str, str]
    """Tests that fail, and what their failure says."""
    passing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What makes a mutant fit."""

    max_share: float = 0.5
    """Of the tests that run, how many may fail at most."""
    max_failing: int = 40
    """And how many tests."""


def tests_for(covering: Set[str], survey: Survey) -> tuple[str, ...]:
    """The tests to run, those that are closest to the bug first, then neighbours of theirs."""
    near = sorted(covering, key=lambda test: (survey.reach[test], test))[:MOST_TESTS]
    if len(near) < FEWEST_TESTS:
        homes = {test.partition("::")[0] for test in near}
        rest = [
            test
            for test in survey.tests
            if test not in covering and test.partition("::")[0] in homes
        ]
        near += rest[: FEWEST_TESTS - len(near)]
    return tuple(near)


def judge(report: TestReport, tests: Sequence[str], limits: Limits) -> Tried:
    """What a run of the tests says of the mutant."""
    outcomes = report.outcomes
    failing = {
        test: report.messages.get(test, "")
        for test in tests
        if outcomes[test] in ("failed", "error")
    }
    passing = tuple(test for test in tests if outcomes[test] == "passed")
    most = min(limits.max_failing, limits.max_share * len(tests))
    fate: Fate = "fit"
    if report.timed_out or "timeout" in outcomes.values():
        fate = "hung"
    elif not failing and len(passing) == len(tests):
        fate = "unseen"
    elif len(failing) > most:
        fate = "too-many"
    elif len(failing) + len(passing) < len(tests) or not report.consistent:
        fate = "broken"
    return Tried(fate=fate, failing=failing, passing=passing)


class Bench:
    """A sandbox that mutants are tried in, one after the other; a context manager."""

    def __init__(self, ground: Ground, survey: Survey, limits: Limits) -> None:
        self._ground, self._survey, self._limits = ground, survey, limits
        self._stack = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._uses = self._clock = 0

    async def __aenter__(self) -> Bench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def attempt(self, files: Mapping[str, bytes], tests: Sequence[str]) -> Tried:
        """Run these tests with these files in place. Raises SandboxError after a second failure."""
        try:
            return await self._attempt(files, tests)
        except SandboxError:
            await self._drop()
            return await self._attempt(files, tests)

    async def _attempt(self, files: Mapping[str, bytes], tests: Sequence[str]) -> Tried:
        sandbox = await self._take()
        before = {path: await sandbox.read(path) for path in files}
        await self._write(sandbox, files)
        each = per_test_limit(tests, self._survey)
        environment = self._ground.environment
        report = await run_tests(
            sandbox,
            test_ids=tests,
            timeout=min(environment.timeout, each + 30 + 5 * self._seconds(tests)),
            per_test_timeout=each,
            lean=False,
            command=by_id(environment.command),
        )
        tried = judge(report, tests, self._limits)
        if tried.fate in ("hung", "broken") or self._uses >= REUSE:
            await self._drop()
        else:
            await self._write(sandbox, before)
        return tried

    def _seconds(self, tests: Sequence[str]) -> float:
        return sum(self._survey.tests[test] for test in tests)

    async def _take(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = await self._stack.enter_async_context(self._ground.sandbox())
            self._uses = 0
        self._uses += 1
        return self._sandbox

    async def _drop(self) -> None:
        self._sandbox = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def _write(self, sandbox: Sandbox, files: Mapping[str, bytes]) -> None:
        """Python takes a compiled file for fresh when size and time of its source are the same."""
        for path, data in files.items():
            await sandbox.write(path, data)
            self._clock += 10
            when = f"@{FIRST_TIME + self._clock}"
            done = await sandbox.run(["touch", "-d", when, "--", path], timeout=30)
            if not done.ok:
                raise SandboxError(f"could not date {path}: {done.stderr.text().strip()}")


def by_id(command: TestCommand) -> TestCommand:
    """The same command with the tests alone instead of their files, where it allows that."""
    if command.kind != "pytest":
        return command
    return replace(command, command=command.command.replace("{test_files}", "{test_ids}"))


def per_test_limit(tests: Sequence[str], survey: Survey) -> float:
    """Seconds after which a test counts as hanging: far more than the slowest took."""
    return min(60.0, 5.0 + 10 * max(survey.tests[test] for test in tests))
