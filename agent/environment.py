"""An environment: owns the sandbox, the tools, the observations, and when it is over.

    async with environment:   resources are taken (as late as it can) and given back
        open()                 what the policy is told first
        step(call)             one tool call, one observation
        outcome()              what is scored: a diff, an answer

It knows no model, no tokens and no chat. A call that makes no sense is an observation; a machine
that failed is an exception (rule 3): `patchgym.sandbox.SandboxError`, or anything else, which ends
the rollout as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from .action import Observation, Opening, ToolCall, ToolSpec


class Environment(Protocol):
    """The world's side of one rollout; an async context manager."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """What may be called."""
        ...

    @property
    def answers(self) -> bool:
        """Every action is a whole answer: a rollout that runs out of turns has handed in its last
        one. Otherwise it was cut off in the middle of its work."""
        ...

    async def __aenter__(self) -> Environment: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    async def open(self) -> Opening:
        """What the policy is told first."""
        ...

    async def step(self, call: ToolCall) -> Observation:
        """Do what `call` asks. An unknown tool or a wrong argument is an observation."""
        ...

    async def outcome(self) -> bytes:
        """What the rollout leaves behind to be scored; asked once, at its end."""
        ...
