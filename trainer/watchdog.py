"""The watchdog: when nothing moves, it says which stage waits for what, with stacks.

    board (moves of rollouts) --+
    learner (kind of work) -----+--> still for `limit` seconds --> report(text)
    queue (groups put, taken) --+

It only looks and tells. A run ends by its own deadlines, which name their culprits; the report is
what one reads afterwards.
"""

from __future__ import annotations

import io
import sys
import threading
import time
import traceback
from collections.abc import Callable

import anyio


class Watchdog:
    """Looks at a counter of progress every few seconds."""

    def __init__(
        self,
        progress: Callable[[], object],
        describe: Callable[[], str],
        report: Callable[[float, str], None],
        *,
        limit: float,
    ) -> None:
        """`progress()` changes whenever anything moves; `report(seconds, text)` is called once for
        each time that it did not for `limit` seconds, and again each time that long after."""
        self._progress = progress
        self._describe = describe
        self._report = report
        self._limit = limit
        self.stalls = 0

    async def run(self) -> None:
        """Watch until cancelled."""
        seen, since, told = self._progress(), time.monotonic(), 0
        while True:
            await anyio.sleep(min(5.0, self._limit / 4))
            now = self._progress()
            if now != seen:
                seen, since, told = now, time.monotonic(), 0
                continue
            still = time.monotonic() - since
            if still >= self._limit * (told + 1):
                told += 1
                self.stalls += 1
                self._report(still, f"{self._describe()}\n\n{thread_stacks()}")


def thread_stacks() -> str:
    """Stacks of all threads, for people."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = io.StringIO()
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, ident)}\n")
        text.writelines(traceback.format_stack(frame))
        text.write("\n")
    return text.getvalue()
