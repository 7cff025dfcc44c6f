"""A host's side of its conversations with the driver, one at a time.

    begin(session)     ends what went before, with all that it held, and says who answers
    post(frames)       frames of the driver
    events()           our frames, as soon as there are any, at the latest after a beat

A conversation is unbroken or it is over: a lost reply is not asked for again, since nobody knows
what it held. The driver begins another one, under another name. When the driver has not asked for
events in `silence` seconds it counts as gone, and everything that it held ends here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import anyio

from patchgym.sandbox.errors import SandboxLost

from .frames import Frame
from .peer import Handler, Peer

BEAT = 5.0
"""Seconds that `events` waits at most: the driver hears of a host at least so often, and at least
four times in the silence after which it counts as lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who answers."""

    host: str
    """The machine's name."""
    pid: int
    patchgym: str
    """Version."""
    python: str
    """Version, without its last part."""


def hello() -> Hello:
    """This process."""
    return Hello(
        host=socket.gethostname(),
        pid=os.getpid(),
        patchgym=version("patchgym"),
        python=".".join(platform.python_version_tuple()[:2]),
    )


class Service(Protocol):
    """What a host does for a driver; outlives conversations, not the host."""

    def handlers(self) -> Mapping[str, Handler]:
        """For one conversation."""
        ...

    async def aclose(self) -> None:
        """Give everything back."""
        ...


class Conversations:
    """The methods of an actor; give a subclass its service, and make the actor of that."""

    def __init__(self, service: Service, *, silence: float) -> None:
        """`silence`: seconds without a word after which the driver counts as gone."""
        self._service, self._silence = service, silence
        self._beat = min(BEAT, silence / 4)
        self._session = ""
        self._peer: Peer | None = None
        self._task: asyncio.Task[None] | None = None
        self._heard = 0.0
        self._asking = 0
        """Calls of `events` that wait: whoever asks is there."""

    async def begin(self, session: str) -> Hello:
        """Begin a conversation called `session`."""
        await self._end()
        peer = Peer(self._service.handlers(), other="the driver")
        self._session, self._peer = session, peer
        self._heard = anyio.current_time()
        ready = anyio.Event()
        self._task = asyncio.create_task(self._serve(peer, ready))
        await ready.wait()
        return hello()

    async def post(self, session: str, frames: Sequence[Frame]) -> None:
        """Frames of the driver. Raises SandboxLost when the conversation is over."""
        self._current(session).feed(frames)

    async def events(self, session: str) -> list[Frame]:
        """Frames for the driver. Raises SandboxLost when the conversation is over."""
        peer = self._current(session)
        self._asking += 1
        try:
            return await peer.take(self._beat)
        finally:
            self._asking -= 1
            self._heard = anyio.current_time()

    async def close(self) -> None:
        """End the conversation, and the service."""
        await self._end()
        await self._service.aclose()

    def _current(self, session: str) -> Peer:
        if session != self._session or self._peer is None:
            raise SandboxLost("this conversation is over")
        return self._peer

    async def _serve(self, peer: Peer, ready: anyio.Event) -> None:
        async with peer.serving():
            ready.set()
            left = self._silence
            while left > 0:
                await anyio.sleep(left)
                waits = self._heard + self._silence - anyio.current_time()
                left = self._beat if self._asking else waits
            self._session = ""

    async def _end(self) -> None:
        task, self._task, self._session, self._peer = self._task, None, "", None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
