"""The driver's end of a host: an actor, one conversation with it, and when to give it up."""

from __future__ import annotations

import secrets
from importlib.metadata import version
from typing import Any

import anyio
import anyio.abc

from patchgym.sandbox.errors import SandboxLost

from .cluster import ClusterError, import_ray
from .conversation import Hello, hello
from .peer import Peer

START_LIMIT = 120.0
"""Seconds for an actor's process to start and to answer; imports on a busy machine take long."""


class Line:
    """One conversation with the host behind `actor`. `run` is its life."""

    def __init__(self, actor: Any, name: str, *, silence: float) -> None:
        """`name` is the host's, for people; `silence` is for how long, in seconds, it may say
        nothing before it counts as lost."""
        self.name = name
        self.peer = Peer({}, other=f"host {name}")
        self._actor, self._silence = actor, silence
        self._session = secrets.token_hex(8)
        self._heard = 0.0

    async def begin(self) -> Hello:
        """Say hello. Raises SandboxLost, and ClusterError when it runs another version."""
        try:
            with anyio.fail_after(START_LIMIT):
                there: Hello = await self._actor.begin.remote(self._session)
        except TimeoutError:
            raise self.peer.lose(f"no answer within {START_LIMIT:.0f} s of its start") from None
        except import_ray().exceptions.RayError as error:
            raise self.peer.lose(reason_of(error)) from None
        here = hello()
        if (there.patchgym, there.python) != (here.patchgym, here.python):
            raise ClusterError(
                f"host {self.name} runs patchgym {there.patchgym} on Python {there.python}, and "
                f"we run {version('patchgym')} on {here.python}: install the same on both"
            )
        return there

    async def run(self) -> SandboxLost:
        """Carry frames until the host is lost; the reason. Cancel it to end the conversation."""
        self._heard = anyio.current_time()
        try:
            async with self.peer.serving(), anyio.create_task_group() as tasks:
                for part in (self._post, self._poll, self._watch):
                    tasks.start_soon(self._until_lost, part, tasks.cancel_scope)
                await anyio.sleep_forever()
        finally:
            if self.peer.lost is None:
                self.peer.lose("we hung up")
        return self.peer.lost or SandboxLost("it was closed")

    async def _until_lost(self, part: Any, scope: anyio.CancelScope) -> None:
        try:
            await part()
        except import_ray().exceptions.RayError as error:
            self.peer.lose(reason_of(error))
        scope.cancel()

    async def _post(self) -> None:
        while self.peer.lost is None:
            frames = await self.peer.take(None)
            if frames:
                await self._actor.post.remote(self._session, frames)

    async def _poll(self) -> None:
        while self.peer.lost is None:
            frames = await self._actor.events.remote(self._session)
            self._heard = anyio.current_time()
            self.peer.feed(frames)

    async def _watch(self) -> None:
        while self.peer.lost is None:
            silent = anyio.current_time() - self._heard
            if silent > self._silence:
                self.peer.lose(f"no word from it for {silent:.0f} s")
            await anyio.sleep(min(1.0, self._silence / 4))


def reason_of(error: BaseException) -> str:
    """Ray's words for what happened, in one line without its tracebacks."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {str(cause).strip().splitlines()[0] if str(cause) else ''}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
