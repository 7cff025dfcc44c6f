"""SIGINT and SIGTERM: the first one stops the work in order, a second one leaves at once.

    signal --> stopping() --> work is cancelled --> cleaned up --> the caller ends the process
                   |
                   +--> LastResort: `limit` seconds later the process ends, whatever it does then

Leaving at once still leaves no container: each ends when its attach stream closes. It loses no
group: what was recorded is written within moments, and a resume goes on from the last checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus

STOPPED = 130
"""Exit code of a process that was asked to stop."""


async def watch_signals(
    work: anyio.CancelScope,
    stopping: Callable[[], None],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """At the first signal call `stopping` and cancel `work`; a second one ends the process."""
    stopped = False
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if stopped:
                os._exit(STOPPED)
            stopped = True
            stopping()
            work.cancel()


class LastResort:
    """Ends this process when an orderly end takes too long; a thread of its own, so that it holds
    while the event loop, a compiler or a disk is stuck."""

    def __init__(self, limit: float, last_words: Callable[[], str]) -> None:
        """`last_words()` is called in that thread, and must not wait for anything."""
        self.limit = limit
        self._last_words = last_words
        self._over = threading.Event()
        self._armed = False

    def arm(self, code: int = STOPPED) -> None:
        """Begin to count, once: the process ends with `code` after `limit` seconds."""
        if not self._armed:
            self._armed = True
            threading.Thread(
                target=self._wait, args=(code,), name="last resort", daemon=True
            ).start()

    def disarm(self) -> None:
        """It has ended in order."""
        self._over.set()

    def _wait(self, code: int) -> None:
        if not self._over.wait(self.limit):
            leave(self._last_words(), code)


def leave(words: str, code: int) -> None:
    """End the process with a line on stderr, without waiting for anything."""
    shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a live view hides the cursor
    try:
        os.write(2, f"{shown}patchgym: {words}\n".encode())
    except OSError:
        pass
    os._exit(code)
