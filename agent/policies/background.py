"""Work beside the body of an `async with`: in a thread, or in tasks; under asyncio and trio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup


def loop_caller() -> Callable[[Callable[[], None]], object]:
    """A way for another thread to call something on the running event loop without waiting."""
    try:
        return asyncio.get_running_loop().call_soon_threadsafe
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token().run_sync_soon


class Background:
    """Tasks that run beside the body of an `async with`; what the body raises stays as it is.

    A task group around the body would wrap its error in a group. The tasks must not raise.
    """

    def __init__(self) -> None:
        self._group: TaskGroup | None = None
        self._scopes: set[anyio.CancelScope] = set()
        self._cancelled = False

    async def open(self) -> None:
        """Begin; to be ended by `close` in the same task."""
        self._group = await anyio.create_task_group().__aenter__()

    @property
    def running(self) -> bool:
        """Whether tasks can be started."""
        return self._group is not None

    def start(self, task: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Start a task; nothing when closed."""
        if self._group is not None:
            self._group.start_soon(self._run, task, arguments)

    def cancel(self) -> None:
        """Cancel all tasks, and those still to be started. The body goes on."""
        self._cancelled = True
        # The group's own scope holds the body as well.
        for scope in self._scopes:
            scope.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        group, self._group = self._group, None
        self.cancel()
        if group is not None:
            await group.__aexit__(None, None, None)

    async def _run(self, task: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        with anyio.CancelScope() as scope:
            if self._cancelled:
                scope.cancel()
            self._scopes.add(scope)
            try:
                await task(*arguments)
            finally:
                self._scopes.discard(scope)
