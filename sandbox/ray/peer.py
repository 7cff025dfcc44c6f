"""One end of a conversation: talks opened by either side, their items, ends and cancellation.

    talk = peer.open("lease", ...)      a task at the other end runs the handler of that name
    talk.send(item)                     items, both ways, in order; with `urgent=False` it may wait
                                        a moment for others to travel with
    await talk.receive()                the other side's next item
    await talk.result()                 what the handler returned or raised
    talk.cancel()                       cancels the handler

How frames travel is another's business: `take` gives those that wait to go, `feed` gets those that
came. Nothing here knows of Ray.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from patchgym.sandbox.errors import SandboxLost

from .frames import Frame, Kind, decode, decode_error, encode, encode_error

WIND_UP = 30.0  # seconds for a cancelled handler to end before its caller goes on without it
FULL = 8 << 20  # bytes that wait to go, above which `room` waits
LINGER = 0.05  # seconds that what is not urgent waits for company

Handler = Callable[..., Awaitable[object]]
"""Called with its `Talk` and the arguments of `open`; what it returns is the talk's result."""


class EndOfTalk(Exception):
    """The other side sends nothing more."""


class Talk:
    """One exchange of items; see the module."""

    def __init__(self, peer: Peer, number: int, *, opener: bool) -> None:
        self.peer, self._number, self._opener = peer, number, opener
        self._items: deque[bytes] = deque()
        self._woken = anyio.Event()
        self._answer: bytes | None = None
        self._error: Exception | None = None
        self._over = False
        self.scope: anyio.CancelScope | None = None
        """Around the handler, at its end."""

    @property
    def over(self) -> bool:
        """Its handler has ended, or the other side is lost."""
        return self._over

    def send(self, item: object, *, urgent: bool = True) -> None:
        """Put an item on its way. Raises what pickling raises."""
        self.peer.put("item", self, encode(item), urgent=urgent)

    async def receive(self) -> Any:
        """The next item. Raises EndOfTalk after the last, SandboxLost when the other side is."""
        while not self._items:
            if self._error is not None:
                raise self._error
            if self._over:
                raise EndOfTalk
            await self._wait()
        return decode(self._items.popleft())

    async def result(self) -> Any:
        """What the handler returned. Raises what it raised, or SandboxLost."""
        while not self._over:
            await self._wait()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return decode(self._answer)

    def cancel(self) -> None:
        """Have the handler cancelled; nothing when it has ended."""
        if not self._over:
            self.peer.put("cancel", self, b"")

    async def ended(self, within: float) -> bool:
        """Whether the handler ended within so many seconds."""
        with anyio.move_on_after(within):
            while not self._over:
                await self._wait()
        return self._over

    async def room(self) -> None:
        """Wait while too much waits to go to the other side."""
        await self.peer.room()

    async def _wait(self) -> None:
        self._woken = anyio.Event()
        await self._woken.wait()

    def _came(self, frame: Frame) -> None:
        if frame.kind == "item":
            self._items.append(frame.payload)
        elif frame.kind == "end":
            self._answer, self._over = frame.payload, True
        elif frame.kind == "error":
            self._fail(decode_error(frame.payload, self.peer.other))
        self._woken.set()

    def _fail(self, error: Exception) -> None:
        self._error, self._over = error, True
        self._woken.set()


class Peer:
    """One end. `async with peer.serving():` runs handlers for as long as the block."""

    def __init__(self, handlers: Mapping[str, Handler], *, other: str) -> None:
        """`other` names the other end, in errors."""
        self.other = other
        self.lost: SandboxLost | None = None
        """Why there is nobody at the other end any more, or None."""
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._talks: dict[tuple[bool, int], Talk] = {}
        self._out: deque[Frame] = deque()
        self._bytes = 0
        self._filled = anyio.Event()
        self._pressed = anyio.Event()
        """Set while something that is urgent waits to go."""
        self._emptied = anyio.Event()
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Handlers run until the end of the block, which cancels them and waits for them."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()

    def open(self, name: str, *arguments: object) -> Talk:
        """Begin a talk with the other side's handler `name`."""
        talk = Talk(self, next(self._numbers), opener=True)
        if self.lost is not None:
            talk._fail(self.lost)
            return talk
        payload = encode((name, arguments))
        self._talks[True, talk._number] = talk
        self.put("open", talk, payload)
        return talk

    async def call(self, name: str, *arguments: object) -> Any:
        """The result of one talk without items; cancelling the call cancels the handler and waits
        until it has ended, `WIND_UP` seconds at most."""
        talk = self.open(name, *arguments)
        try:
            return await talk.result()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                talk.cancel()
                await talk.ended(WIND_UP)
            raise

    def put(self, kind: Kind, talk: Talk, payload: bytes, *, urgent: bool = True) -> None:
        """Line a frame up to go."""
        if self.lost is None:
            self._out.append(Frame(kind, talk._opener, talk._number, payload))
            self._bytes += len(payload)
            self._filled.set()
            if urgent:
                self._pressed.set()

    async def take(self, within: float | None) -> list[Frame]:
        """The frames that wait to go, as soon as one is urgent, or `LINGER` seconds after the first
        of them; none after `within` seconds."""
        if not self._out:
            self._filled = anyio.Event()
            with anyio.move_on_after(within):
                await self._filled.wait()
        if self._out and not self._pressed.is_set():
            with anyio.move_on_after(LINGER):
                await self._pressed.wait()
        frames = list(self._out)
        self._out.clear()
        self._bytes = 0
        self._pressed = anyio.Event()
        self._emptied.set()
        return frames

    async def room(self) -> None:
        """Wait while more than `FULL` bytes wait to go."""
        while self._bytes > FULL and self.lost is None:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def feed(self, frames: Iterable[Frame]) -> None:
        """Take frames that came."""
        for frame in frames:
            if frame.kind == "open":
                self._begin(frame)
                continue
            ours = not frame.opener
            talk = self._talks.get((ours, frame.number))
            if talk is None:
                continue  # it was over: the frame crossed its end
            if frame.kind == "cancel":
                if talk.scope is not None:
                    talk.scope.cancel()
                continue
            talk._came(frame)
            if talk.over:
                self._talks.pop((ours, frame.number))

    def lose(self, reason: str) -> SandboxLost:
        """There is nobody at the other end any more: every open talk ends with this."""
        self.lost = self.lost or SandboxLost(f"{self.other}: {reason}")
        talks = list(self._talks.items())
        for (ours, _), talk in talks:
            if ours:
                talk._fail(self.lost)
            elif talk.scope is not None:
                talk.scope.cancel()
        self._filled.set()
        self._pressed.set()
        self._emptied.set()
        return self.lost

    def _begin(self, frame: Frame) -> None:
        talk = Talk(self, frame.number, opener=False)
        self._talks[False, frame.number] = talk
        assert self._tasks is not None, "feed() outside serving()"
        talk.scope = anyio.CancelScope()
        self._tasks.start_soon(self._handle, talk, frame.payload)

    async def _handle(self, talk: Talk, payload: bytes) -> None:
        assert talk.scope is not None
        kind: Kind = "error"
        answer = encode_error(SandboxLost("it was cancelled"))
        try:
            with talk.scope:
                name, arguments = decode(payload)
                kind, answer = "end", encode(await self._handlers[name](talk, *arguments))
        except Exception as error:  # the boundary where errors become frames
            kind, answer = "error", encode_error(error)
        finally:
            self.put(kind, talk, answer)
            self._talks.pop((False, talk._number), None)
