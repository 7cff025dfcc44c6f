"""The repair environment: a task bound to a leased sandbox, answering actions with observations.

State: *closed* (no sandbox yet) -> first action leases one and checks the task out -> *open* ->
leaving the context gives the lease back. The lease is taken late on purpose: while the policy is
still writing its first answer, no sandbox waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task
from patchgym.sandbox import Sandbox, TestReport, run_tests

from .repair import Answer, replace_function
from .trajectory import Observation, ObservationKind

LeaseFactory = Callable[[], AbstractAsyncContextManager[Sandbox]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentConfig:
    """Limits of one environment."""

    tests_timeout: float = 10.0
    """Seconds a whole test run may take."""
    repositories: Path = field(default_factory=repositories_dir)
    """Folder for the materialized bundled repositories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """An observation and the state it was made in."""

    observation: Observation
    diff: bytes
    """Working tree against the base commit."""


class RepairEnvironment:
    """Applies whole-function answers to one task and runs its tests."""

    def __init__(self, task: Task, lease: LeaseFactory, config: EnvironmentConfig) -> None:
        if task.focus is None:
            raise ValueError(f"{task.id}: the repair environment needs a task with a focus")
        self.task = task
        self.focus = task.focus
        self._lease = lease
        self._config = config
        self._stack = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._source = ""

    async def __aenter__(self) -> RepairEnvironment:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def source(self) -> str:
        """Text of the file in focus at the base commit."""
        if not self._source:
            self._source = await anyio.to_thread.run_sync(self._read_source)
        return self._source

    async def step(self, answer: Answer) -> StepResult:
        """Apply `answer` to the base commit and say what came of it."""
        if answer.code is None:
            return _unchanged("format_error", answer.problem)
        source = await self.source()
        changed = replace_function(source, self.focus.function, answer.code)
        if changed == source:
            return _unchanged("no_change", "Your answer is the same as the function with the bug.")
        sandbox = await self._open()
        await sandbox.write(self.focus.path, changed.encode())
        diff = await sandbox.diff()
        report = await run_tests(
            sandbox,
            test_ids=(*self.task.fail_to_pass, *self.task.pass_to_pass),
            timeout=self._config.tests_timeout,
            lean=self.task.files is not None,
        )
        return StepResult(observation=observe(report), diff=diff)

    async def _open(self) -> Sandbox:
        if self._sandbox is None:
            root = await anyio.to_thread.run_sync(materialize, self.task, self._config.repositories)
            self._sandbox = await self._stack.enter_async_context(self._lease())
            await self._sandbox.checkout(root, self.task.base_commit)
        return self._sandbox

    def _read_source(self) -> str:
        if self.task.files is not None:
            return self.task.files[self.focus.path]
        from git import Repo

        with Repo(materialize(self.task, self._config.repositories)) as repository:
            blob = repository.commit(self.task.base_commit).tree / self.focus.path
            data: bytes = blob.data_stream.read()
        return data.decode()


def _unchanged(kind: ObservationKind, text: str) -> StepResult:
    return StepResult(observation=Observation(kind=kind, text=text, done=False), diff=b"")


def observe(report: TestReport) -> Observation:
    """Short, exact words for a test report."""
    done = report.consistent and all(o == "passed" for o in report.outcomes.values())
    return Observation(
        kind="tests",
        text=_words(report, done),
        done=done,
        outcomes=report.outcomes,
        messages=report.messages,
        timed_out=report.timed_out,
        seconds=report.duration,
    )


def _words(report: TestReport, done: bool) -> str:
    if done:
        return f"All {len(report.outcomes)} tests pass."
    if report.timed_out:
        return f"The tests did not finish within {report.duration:.0f} s."
    failing = [test for test, outcome in report.outcomes.items() if outcome != "passed"]
    if not failing:
        return "The tests passed, but the test run itself ended badly: it does not count."
    message = report.messages.get(failing[0]) or f"{failing[0]}: {report.outcomes[failing[0]]}"
    more = f" ({len(failing) - 1} more fail)" if len(failing) > 1 else ""
    return f"This test still fails: `{message.strip()}`{more}."
