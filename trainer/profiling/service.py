"""The run's side of captures: it listens beside the training, and makes one capture at a time.

    files (mailbox) --+
    SIGUSR1 ----------+--> free? --> begin --> seconds --> finish --> answer, a line in the log
    a long wait ------+     no: refused, with what goes on

Tracing starts and stops in worker threads; the event loop only sleeps in between. When the run
ends, a capture that is going on is finished early, marked, and kept.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus

from patchgym.trainer.profile_config import LONGEST, SHORTEST, ProfileConfig

from .capture import (
    Begun,
    CaptureError,
    Cause,
    Why,
    begin_capture,
    captures,
    finish_capture,
    remove_partials,
)
from .mailbox import Answer, Mailbox
from .waits import Observation, WaitWatch

_LOOK_EVERY = 0.5
_FINISH_LIMIT = 60.0
"""Seconds that the end of a run waits for a capture to be written."""


class ProfileService:
    """Makes captures of this process on demand; `run` it beside what is to be seen."""

    def __init__(
        self,
        profile: Path,
        config: ProfileConfig,
        *,
        observe: Callable[[], Observation | None],
        tell: Callable[[str], None],
    ) -> None:
        """`profile` is where captures go, `observe` says where the run is (None: not begun), and
        `tell` gets a line for each capture."""
        self._profile = profile
        self._config = config
        self._observe = observe
        self._tell = tell
        self._mailbox = Mailbox(profile)
        self._waits = WaitWatch(config.on_wait)
        self._automatic = 0
        self._under_way = ""

    async def run(self) -> None:
        """Listen until cancelled. Once `owner.json` is there it listens to everything."""
        try:
            async with anyio.create_task_group() as group:
                await group.start(self._signals, group)
                await anyio.to_thread.run_sync(self._open)
                while True:
                    await self._look(group)
                    await anyio.sleep(_LOOK_EVERY)
        finally:
            with anyio.move_on_after(_FINISH_LIMIT, shield=True):
                await anyio.to_thread.run_sync(self._mailbox.close)

    def _open(self) -> None:
        remove_partials(self._profile)
        self._mailbox.open()
        self._automatic = sum(record["why"] == "wait" for record in captures(self._profile))

    async def _signals(
        self, group: TaskGroup, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        with anyio.open_signal_receiver(signal.SIGUSR1) as signals:
            task_status.started()
            async for _ in signals:
                if self._under_way:
                    self._tell(f"SIGUSR1: no capture is made: {self._under_way}")
                else:
                    self._start(group, self._cause("signal"), self._config.seconds)

    async def _look(self, group: TaskGroup) -> None:
        """Requests, and a wait that has become too long."""
        for name, seconds in (await anyio.to_thread.run_sync(self._mailbox.take)).items():
            if refusal := self._refusal(seconds):
                answer = Answer(state="refused", words=refusal, capture=None)
                await anyio.to_thread.run_sync(self._mailbox.answer, name, answer)
            elif seconds is not None:
                self._start(group, self._cause("asked"), seconds, name)
        waited = self._waits.passed(self._observe())
        if waited is None or self._under_way or self._automatic >= self._config.automatic:
            return
        self._automatic += 1
        self._start(group, self._cause("wait"), self._config.seconds)

    def _refusal(self, seconds: float | None) -> str:
        """Why a request is not served; empty when it is."""
        if seconds is None or not SHORTEST <= seconds <= LONGEST:
            return f"{seconds} seconds asked for: give {SHORTEST:g} to {LONGEST:g}"
        return self._under_way

    def _cause(self, why: Why) -> Cause:
        seen = self._observe()
        if seen is None:
            return Cause(why=why)
        return Cause(
            why=why,
            step=seen.step,
            policy_version=seen.policy_version,
            waited=seen.waiting,
        )

    def _start(self, group: TaskGroup, cause: Cause, seconds: float, name: str = "") -> None:
        # Said before anything is awaited, so that never two go on.
        self._under_way = f"a capture of {seconds:g} s ({cause.why}) is going on already"
        group.start_soon(self._capture, cause, seconds, name)

    async def _capture(self, cause: Cause, seconds: float, name: str) -> None:
        """Make a capture, and say what came of it."""
        try:
            begun = await anyio.to_thread.run_sync(begin_capture, self._profile, cause)
            cut_short = True
            try:
                await anyio.sleep(seconds)
                cut_short = False
            finally:
                with anyio.move_on_after(_FINISH_LIMIT, shield=True):
                    await self._finish(begun, cut_short, name)
        except CaptureError as error:
            await self._say(name, Answer(state="failed", words=str(error), capture=None))
        finally:
            self._under_way = ""

    async def _finish(self, begun: Begun, cut_short: bool, name: str) -> None:
        finish = partial(
            finish_capture, begun, cut_short=cut_short, limit=self._config.disk_mib << 20
        )
        try:
            record = await anyio.to_thread.run_sync(finish, abandon_on_cancel=True)
        except CaptureError as error:
            await self._say(name, Answer(state="failed", words=str(error), capture=None))
        else:
            await self._say(name, Answer(state="done", words="", capture=record))

    async def _say(self, name: str, answer: Answer) -> None:
        if answer.capture is None:
            self._tell(f"profile: {answer.words}")
        else:
            size = int(answer.capture["bytes"]) / (1 << 20)
            where = self._profile / str(answer.capture["folder"])
            self._tell(f"profile: {where} ({answer.capture['why']}, {size:.1f} MiB)")
        if name:
            await anyio.to_thread.run_sync(self._mailbox.answer, name, answer)
