"""A context manager that stays open between calls: entered and left by one task of its own."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

T = TypeVar("T")


class Held(Generic[T]):
    """Opened by `open`, closed by `aclose`; both may be called from any task of the loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.value: T | None = None
        """What the context manager gave; None while it is not open."""

    async def open(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter it. Raises what entering raises; cancelled, it is left again."""
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._hold(manager, entered))
        try:
            return await asyncio.shield(entered)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Leave it, if it is open."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing.set()
        if self.value is None:
            task.cancel()  # it is still being entered
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _hold(
        self, manager: AbstractAsyncContextManager[T], entered: asyncio.Future[T]
    ) -> None:
        try:
            async with manager as value:
                self.value = value
                entered.set_result(value)
                try:
                    await self._closing.wait()
                finally:
                    self.value = None
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
