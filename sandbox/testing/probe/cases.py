"""What every test framework's hooks share: timing, limits, and words for a failure."""

from __future__ import annotations

import os
import signal
import time
import traceback
from typing import Any

MESSAGE = 400  # characters


class TestTimeout(BaseException):
    """One test's own limit; not an Exception, so that tests don't catch it by accident."""

    __test__ = False


def _alarm(number: int, where: object) -> None:
    raise TestTimeout("the test's time was up")


class Cases:
    """Tells of each test as it starts and ends."""

    def __init__(self, tell: Any, seconds: Any) -> None:
        self.tell, self.seconds, self.began = tell, seconds, 0.0
        self._clock, self._timer, self._signal = time.perf_counter, signal.setitimer, signal.signal

    def start(self, test: str) -> None:
        self.tell(start=test)
        self.began = self._clock()
        if self.seconds:
            self._signal(signal.SIGALRM, _alarm)
            self._timer(signal.ITIMER_REAL, self.seconds)

    def stop_clock(self) -> None:
        self._timer(signal.ITIMER_REAL, 0)

    def end(self, test: str, outcome: str, message: str, names: Any = ()) -> None:
        self.stop_clock()
        seconds = round(self._clock() - self.began, 4)
        self.tell(
            test=test, names=list(names), outcome=outcome, message=message[:MESSAGE],
            seconds=seconds,
        )  # fmt: skip


def explain(kind: Any, value: Any, trace: Any) -> str:
    """Short and useful: the line that failed, then what was got."""
    here = os.getcwd() + os.sep
    try:
        first = (str(value).strip().splitlines() or [""])[0]
        frames = traceback.extract_tb(trace)
    except Exception:  # no words for it is no reason to lose the verdict
        return getattr(kind, "__name__", "error")
    mine = [frame for frame in frames if os.path.abspath(frame.filename).startswith(here)]
    if not mine:
        return f"{kind.__name__}: {first}"[:MESSAGE]
    line = mine[-1].line or "?"
    if issubclass(kind, AssertionError) and first:
        return f"{line}\n{first}"[:MESSAGE]
    place = f"{os.path.relpath(mine[-1].filename)}:{mine[-1].lineno}"
    return f"{kind.__name__}: {first}\nat {place}: {line}"[:MESSAGE]
