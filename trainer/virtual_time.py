"""Virtual time: a program of tasks that sleep, run as fast as it can be, with exact durations.

When nothing is left to do before the next timer, the clock jumps to it. What computes takes no
time at all, so that a simulated run comes out the same on any machine, to the microsecond: the
account of its waits can be compared with what was put into it.

While it goes on, `time.monotonic` of the whole process is that clock, and what anyio would do in a
worker thread is done on the loop. Other threads may wake the loop; the clock stands meanwhile.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


class VirtualClock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    """A selector that moves the clock where it would have waited."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        """What is ready now; nothing, after moving the clock, where nothing is."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.now += timeout
        return ready


def run_virtually(function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """`anyio.run(function, *arguments)` in virtual time. One at a time in a process."""
    clock = VirtualClock()

    def loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_Jumping(clock))

    with _clock_of_the_process(clock):
        return anyio.run(function, *arguments, backend_options={"loop_factory": loop})


@contextmanager
def _clock_of_the_process(clock: VirtualClock) -> Iterator[None]:
    real, threads = time.monotonic, anyio.to_thread.run_sync

    async def inline(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        return function(*arguments)

    time.monotonic = clock
    anyio.to_thread.run_sync = inline  # type: ignore[assignment]
    try:
        yield
    finally:
        time.monotonic, anyio.to_thread.run_sync = real, threads
