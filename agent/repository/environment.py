"""The repository environment: a task's repository in a leased sandbox, and tools to work on it.

State: *closed* (no sandbox yet) -> the first call that needs one leases it -> *open* -> leaving the
context gives the lease back. What is handed in is the diff against the base commit, new files
included.

The opening's facts: `statement`, `repository` (the folder where it lies), and `tests` (the command
that runs them, with placeholders such as `{test_files}`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any

from patchgym.agent.action import Observation, Opening, ToolCall, ToolSpec
from patchgym.datasets.environment import Environment as TestEnvironment
from patchgym.datasets.task import Task
from patchgym.sandbox import PatchError, Sandbox, SandboxUsageError

from .config import RepositoryConfig
from .edit import edit
from .lease import LeaseFactory
from .shell import Shell
from .testing import VisibleTests, find_visible, observe_tests
from .tools import repository_tools, unusable, without_nulls
from .view import told_off, view

PYTEST = "python3 -m pytest"


class RepositoryEnvironment:
    """Tools on a whole repository; see `agent.Environment`."""

    answers = False

    def __init__(
        self,
        task: Task,
        lease: LeaseFactory,
        config: RepositoryConfig | None = None,
        *,
        folder: str = "",
    ) -> None:
        """`lease` gives sandboxes with the repository in their workdir: see `lease_repository`.

        `folder` is what the policy is told of where that is; by default, what the task's
        environment says, or `/workspace`.
        """
        self.task = task
        self.folder = folder or (task.environment or TestEnvironment()).workdir
        self._lease = lease
        self._config = config or RepositoryConfig()
        self.tools: Sequence[ToolSpec] = repository_tools(self._config)
        self._specs = {spec.name: spec for spec in self.tools}
        self._stack = AsyncExitStack()
        self._sandbox: Sandbox | None = None
        self._shell: Shell | None = None
        self._visible: VisibleTests | None = None
        self._submitted: bytes | None = None

    async def __aenter__(self) -> RepositoryEnvironment:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sandbox = self._shell = None
        await self._stack.__aexit__(kind, error, trace)

    async def open(self) -> Opening:
        """The statement, where the repository lies, and how its tests are run."""
        environment = self.task.environment
        command = (environment.test_command if environment else "") or PYTEST
        statement = self.task.statement.strip()
        text = (
            f"{statement}\n\n"
            f"The repository is in {self.folder}, where commands start. "
            f"Its tests are run with `{command}`."
        )
        facts = {"statement": statement, "repository": self.folder, "tests": command}
        return Opening(text=text, facts=facts)

    async def step(self, call: ToolCall) -> Observation:
        """Do what `call` asks. Raises SandboxError when the sandbox fails."""
        spec = self._specs.get(call.name)
        if spec is None:
            names = ", ".join(self._specs)
            return told_off(f"There is no tool `{call.name}`; the tools are {names}.")
        call = without_nulls(spec, call)
        problem = unusable(spec, call)
        if problem:
            return replace(told_off(problem), tool=spec.name)
        if spec.name == "submit" and self._sandbox is None:
            return replace(_submitted(), tool=spec.name)  # no sandbox for an empty diff
        sandbox = await self._leased()
        started = time.monotonic()
        found = await self._answer(spec.name, sandbox, call.arguments)
        return replace(found, tool=spec.name, seconds=time.monotonic() - started)

    async def outcome(self) -> bytes:
        """The diff against the base commit; empty when nothing was ever done.

        Where git can tell no diff (over 8 MiB, or its folder is ruined) that was the policy's own
        doing: the outcome is empty then too.
        """
        if self._submitted is not None:
            return self._submitted
        if self._sandbox is None:
            return b""
        try:
            return await self._sandbox.diff()
        except (PatchError, SandboxUsageError):
            return b""

    async def _leased(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = await self._stack.enter_async_context(self._lease())
        return self._sandbox

    async def _answer(
        self, tool: str, sandbox: Sandbox, arguments: Mapping[str, Any]
    ) -> Observation:
        """What a tool says; the arguments fit its parameters."""
        config = self._config
        match tool:
            case "bash":
                return await self._bash(sandbox, arguments["command"])
            case "view":
                return await view(
                    sandbox,
                    **arguments,
                    told=self.folder,
                    lines=config.view_lines,
                    characters=config.output_characters,
                )
            case "edit":
                return await edit(
                    sandbox, **arguments, told=self.folder, characters=config.output_characters
                )
            case "run_tests":
                return await self._run_tests(sandbox, arguments.get("tests"))
            case _:
                return await self._submit(sandbox)

    async def _bash(self, sandbox: Sandbox, command: str) -> Observation:
        if self._shell is None:
            self._shell = Shell(
                sandbox=sandbox,
                seconds=self._config.command_seconds,
                characters=self._config.output_characters,
            )
        return await self._shell.run(command)

    async def _run_tests(self, sandbox: Sandbox, named: Sequence[str] | None) -> Observation:
        if self._visible is None:
            self._visible = await find_visible(self.task, self._config.repositories)
        return await observe_tests(
            sandbox,
            self.task,
            self._visible,
            named,
            seconds=self._config.tests_seconds,
            characters=self._config.output_characters,
        )

    async def _submit(self, sandbox: Sandbox) -> Observation:
        try:
            self._submitted = await sandbox.diff()
        except (PatchError, SandboxUsageError) as error:
            return told_off(f"Your changes can't be handed in: {error}. Mend that, then submit.")
        return _submitted()


def _submitted() -> Observation:
    return Observation(kind="submitted", text="Handed in.", done=True)
