"""How late the event loop is: a small timer that is watched (rule 13 says: never blocked)."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass

import anyio

from .statistics import percentile

SWITCH = 0.001
"""Seconds after which a thread that computes in Python lets the loop's thread go on; five
milliseconds is what Python would give it, and that is what `LATE` calls blocked."""
PERIOD = 0.01
"""Seconds between two beats."""
LATE = 0.005
"""Seconds past which a beat counts as late: the loop was blocked for that long."""
KEPT = 60_000
"""Beats that percentiles are taken over: the last ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """Since the start, or since the last `restart`."""

    blocked_share: float
    """Seconds of late beats over all seconds."""
    p50: float
    """Seconds."""
    p99: float
    maximum: float


class LoopLag:
    """Watches the event loop that it runs on."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was."""
        self._lags: deque[float] = deque(maxlen=KEPT)
        self._blocked = 0.0
        self._since = time.perf_counter()

    async def run(self) -> None:
        """Beat until cancelled; threads of this process give way sooner from here on."""
        sys.setswitchinterval(SWITCH)
        while True:
            due = time.perf_counter() + PERIOD
            await anyio.sleep(PERIOD)
            lag = max(0.0, time.perf_counter() - due)
            self._lags.append(lag)
            if lag > LATE:
                self._blocked += lag

    def report(self) -> LagReport:
        """What was seen so far."""
        seconds = max(time.perf_counter() - self._since, 1e-9)
        lags = list(self._lags) or [0.0]
        return LagReport(
            blocked_share=self._blocked / seconds,
            p50=percentile(lags, 0.5),
            p99=percentile(lags, 0.99),
            maximum=max(lags),
        )
