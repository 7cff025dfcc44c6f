"""What the clients of servers have in common: names of turns, waiting turns, the load's watch."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import anyio

from patchgym.agent.policy import PolicyLoad

from .background import Background
from .calls import JsonCalls
from .errors import PolicyClosed, PolicyError, PolicyRefused, PolicyUnavailable, WeightPushError
from .metrics_text import load_of

CALL_LIMIT = 10.0
"""Seconds that a call which samples nothing may take."""

Answer = TypeVar("Answer")


class Connection:
    """One server, open or not: its calls, the turns that wait on it, how busy it said it is."""

    def __init__(self, url: str, *, poll_seconds: float, api_key_variable: str | None) -> None:
        self.url = url.rstrip("/")
        self.calls = JsonCalls(self.url, headers=authorization(api_key_variable))
        self.load = PolicyLoad()
        self._poll_seconds = poll_seconds
        self._broken: PolicyError | None = None
        self._waiting: set[anyio.CancelScope] = set()
        self._background = Background()
        # All of one length: SGLang aborts whatever begins with the name that it is given.
        self._names = (f"{uuid.uuid4().hex[:12]}-{turn:012d}" for turn in itertools.count())

    async def open(
        self,
        greet: Callable[[], Awaitable[None]],
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the client, let `greet` ask what it needs, and follow the load from then on.

        `refresh` asks, as often as for the load, what may have changed.
        """
        await self.calls.open()
        try:
            await greet()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.calls.close()
            raise
        await self._background.open()
        self._background.start(self._watch, refresh)

    async def close(self) -> None:
        """Tell waiting turns, and disconnect."""
        self.fail(PolicyClosed(f"{self.url}: the policy was closed"))
        try:
            await self._background.close()
        finally:
            with anyio.CancelScope(shield=True):
                await self.calls.close()

    async def turn(
        self, ask: Callable[[str], Awaitable[Answer]], abort: Callable[[str], Awaitable[None]]
    ) -> Answer:
        """What `ask` answers under a new name; `abort` of that name when it is left before."""
        self.check_open()
        name, done = next(self._names), False
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                answer = await ask(name)
                done = True
                return answer
            finally:
                self._waiting.discard(scope)
                if not done:
                    self._background.start(self._quietly, abort, name)
        raise self._broken or PolicyClosed(f"{self.url}: the policy was closed")

    def check_open(self) -> None:
        """Raise unless turns can be asked for."""
        if self._broken is not None:
            raise self._broken
        if not self._background.running:
            raise PolicyClosed(f"{self.url}: the policy is not open: use `async with`")

    def fail(self, error: PolicyError) -> None:
        """No turn from now on; those that wait are told."""
        if self._broken is None:
            kind = PolicyUnavailable if isinstance(error, WeightPushError) else type(error)
            self._broken = kind(str(error))
        for scope in self._waiting:
            scope.cancel()

    async def _watch(self, refresh: Callable[[], Awaitable[None]] | None) -> None:
        """Follow the load; a server that doesn't answer keeps the last that it said."""
        while True:
            try:
                self.load = load_of(await self.calls.get_text("/metrics", limit=CALL_LIMIT))
                if refresh is not None:
                    await refresh()
            except PolicyError:
                pass  # turns and health checks say so with more to go by
            await anyio.sleep(self._poll_seconds)

    async def _quietly(self, abort: Callable[[str], Awaitable[None]], name: str) -> None:
        """Abort by name as well: a proxy between us may hide that we went away."""
        try:
            await abort(name)
        except PolicyError:
            pass  # the disconnection did it, or the server is gone


def authorization(variable: str | None) -> Mapping[str, str]:
    """A bearer header with the key in the environment variable named, if any."""
    if variable is None:
        return {}
    key = os.environ.get(variable)
    if not key:
        raise PolicyRefused(f"the environment variable {variable} holds no API key")
    return {"Authorization": f"Bearer {key}"}
