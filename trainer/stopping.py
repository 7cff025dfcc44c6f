"""SIGINT and SIGTERM: the first one stops the work in order, a second one leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus


async def watch_signals(
    work: anyio.CancelScope,
    stopping: Callable[[], None],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """At the first signal call `stopping` and cancel `work`; a second one ends the process (130).

    Leaving at once still leaves no container: each ends when its attach stream closes.
    """
    stopped = False
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if stopped:
                os._exit(130)
            stopped = True
            stopping()
            work.cancel()
