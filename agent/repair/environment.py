"""The repair environment: one function with a bug, and tests that say when it is whole.

State: *closed* (no sandbox yet) -> the first answer leases one and checks the task out -> *open* ->
leaving the context gives the lease back. The lease is taken late on purpose: while the policy is
still writing its first answer, no sandbox waits for it.

One tool, `replace_function(code)`: every call is a whole answer, applied to the base commit. The
opening's facts: `function` (its name), `path`, and `source` (the file's text).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread

from patchgym.agent.action import (
    Observation,
    ObservationKind,
    Opening,
    ToolCall,
    ToolSpec,
    missing_arguments,
)
from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import Task
from patchgym.sandbox import Sandbox, TestReport, run_tests

from .source import replace_function

LeaseFactory = Callable[[], AbstractAsyncContextManager[Sandbox]]

REPLACE_FUNCTION = ToolSpec(
    name="replace_function",
    description="Replace the function with the bug by a fixed one, and run the tests.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "the whole function"}},
        "required": ["code"],
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairConfig:
    """Limits of one repair environment."""

    tests_timeout: float = 10.0
    """Seconds a whole test run may take."""
    repositories: Path = field(default_factory=repositories_dir)
    """Folder for the materialized bundled repositories."""


class RepairEnvironment:
    """Applies whole-function answers to one task and runs its tests; see `agent.Environment`."""

    tools: Sequence[ToolSpec] = (REPLACE_FUNCTION,)
    answers = True

    def __init__(self, task: Task, lease: LeaseFactory, config: RepairConfig) -> None:
        if task.focus is None:
            raise ValueError(f"{task.id}: the repair environment needs a task with a focus")
        self.task = task
        self.focus = task.focus
        self._lease = lease
        self._config = config
        self._stack = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._source = ""
        self._diff = b""

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

    async def open(self) -> Opening:
        """The statement, with the function's source among the facts."""
        self._source = await anyio.to_thread.run_sync(self._read_source)
        facts = {
            "function": self.focus.function,
            "path": self.focus.path,
            "source": self._source,
        }
        return Opening(text=self.task.statement.strip(), facts=facts)

    async def step(self, call: ToolCall) -> Observation:
        """Apply an answer to the base commit and say what came of it."""
        if call.name != REPLACE_FUNCTION.name:
            return _unchanged("tool_error", f"There is no tool `{call.name}`.")
        problem = missing_arguments(REPLACE_FUNCTION, call)
        if problem:
            return _unchanged("tool_error", problem)
        changed = replace_function(self._source, self.focus.function, str(call.arguments["code"]))
        if changed == self._source:
            return _unchanged("no_change", "Your answer is the same as the function with the bug.")
        sandbox = await self._checked_out()
        await sandbox.write(self.focus.path, changed.encode())
        self._diff = await sandbox.diff()
        # Bytecode of an earlier answer of the same second and size would count as fresh.
        await sandbox.run(["find", ".", "-name", "*.pyc", "-delete"], timeout=30)
        report = await run_tests(
            sandbox,
            test_ids=(*self.task.fail_to_pass, *self.task.pass_to_pass),
            timeout=self._config.tests_timeout,
            lean=self.task.files is not None,
        )
        return observe(report, self._diff)

    async def outcome(self) -> bytes:
        """The diff of the last answer that changed anything, or nothing."""
        return self._diff

    async def _checked_out(self) -> Sandbox:
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


def _unchanged(kind: ObservationKind, text: str) -> Observation:
    return Observation(kind=kind, text=text, done=False, tool=REPLACE_FUNCTION.name)


def observe(report: TestReport, diff: bytes) -> Observation:
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
        tool=REPLACE_FUNCTION.name,
        diff=diff,
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
