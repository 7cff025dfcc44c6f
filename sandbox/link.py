"""The conversation with a supervisor: many requests in flight over one stream of bytes.

There is no reader task. Whoever waits for an answer reads the stream for all; when it has its own,
it hands the reading on to another that still waits. So a link needs no task group, costs no switch
of tasks for a lone request, and a cancelled waiter loses nothing of anybody's.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import anyio.abc

from .errors import SandboxError, SandboxLost, SandboxUsageError
from .process import Process
from .protocol import ANSWER_LIMIT, VERSION, Demultiplexer, Frame, encode

READY_LIMIT = 60.0  # seconds for a started container to say hello; generous on a busy machine
PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT
CANCEL_LIMIT = 5.0  # seconds to wind up a cancelled command before the sandbox is given up


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and the answers to it that have come and were not taken yet."""

    number: int
    frames: deque[Frame] = field(default_factory=deque)
    woken: anyio.Event = field(default_factory=anyio.Event)
    waiting: bool = False


class Link:
    """One supervisor. Methods raise SandboxLost once it is gone, however that came about."""

    def __init__(
        self, name: str, stream: anyio.abc.ByteStream, early: bytes = b"", *, plain: bool = False
    ) -> None:
        """`early` bytes of the stream were read already; a `plain` one is not Docker's."""
        self.name = name
        """Of the container, for messages."""
        self.lost: str | None = None
        """Why it can't be used any more, or None."""
        self.kind = ""
        """What the supervisor calls itself: static or python."""
        self._stream = stream
        self._incoming = Demultiplexer(plain=plain)
        self._incoming.feed(early)
        self._writing = anyio.Lock()
        self._reading = False
        self._exchanges = {0: Exchange(0)}
        self._numbers = 0

    async def greet(self) -> None:
        """Wait until the supervisor is ready."""
        frame = await self.answer(self._exchanges[0], READY_LIMIT)
        if frame.kind != b"H" or frame.fields.get(b"v") != VERSION:
            raise self.lose("an unknown supervisor answered")
        self.kind = frame.fields.get(b"k", b"").decode("ascii", "replace")

    async def open(self, kind: bytes, fields: Sequence[tuple[bytes, bytes]]) -> Exchange:
        """Send a request; its answers come by `answer` until it is closed."""
        self._numbers += 1
        exchange = Exchange(self._numbers)
        data = encode(kind, exchange.number, fields)
        self._exchanges[exchange.number] = exchange
        try:
            await self.send(data)
        except BaseException:
            self.close(exchange)
            raise
        return exchange

    def close(self, exchange: Exchange) -> None:
        """No more answers are wanted; late ones are dropped."""
        self._exchanges.pop(exchange.number, None)

    async def ask(
        self, kind: bytes, fields: Sequence[tuple[bytes, bytes]], expected: bytes
    ) -> Frame:
        """One request, one answer. Raises SandboxUsageError when it is an E frame."""
        exchange = await self.open(kind, fields)
        try:
            return self.checked(await self.answer(exchange, ANSWER_LIMIT), expected)
        finally:
            self.close(exchange)

    def checked(self, frame: Frame, expected: bytes) -> Frame:
        """`frame`, when it is of the expected kind."""
        if frame.kind == b"E":
            raise SandboxUsageError(frame.fields[b"m"].decode("utf-8", "replace"))
        if frame.kind != expected:
            raise self.lose(f"the supervisor answered {frame.kind!r}, not {expected!r}")
        return frame

    async def send(self, data: bytes) -> None:
        """Send whole frames; not cancelled half way, which would make the stream useless."""
        if self.lost:
            raise SandboxLost(f"{self.name}: {self.lost}")
        try:
            with anyio.CancelScope(shield=True), anyio.fail_after(ANSWER_LIMIT):
                async with self._writing:
                    await self._stream.send(data)
        except TimeoutError:
            raise self.lose("the supervisor does not read its stdin") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                while not self._reading:
                    await self._read()  # raises SandboxLost with the supervisor's last words
            raise self.lose("its container ended") from None

    async def answer(self, exchange: Exchange, limit: float | None) -> Frame:
        """The next answer to a request, within `limit` seconds (None: however long it takes)."""
        try:
            with anyio.fail_after(limit):
                while not exchange.frames:
                    await self._progress(exchange)
        except TimeoutError:
            reason = f"its supervisor gave no answer within {limit or 0:.0f} s"
            raise self.lose(reason) from None
        finally:
            if not self._reading:
                self._hand_on()
        return exchange.frames.popleft()

    async def command(self, fields: Sequence[tuple[bytes, bytes]], limit: float | None) -> Frame:
        """A command from its start to its D frame, within `limit` seconds; killed if cancelled."""
        exchange = await self.open(b"R", fields)
        try:
            return self.checked(await self.answer(exchange, limit), b"D")
        except anyio.get_cancelled_exc_class():
            await self.cancel(exchange)
            raise
        finally:
            self.close(exchange)

    async def start(self, fields: Sequence[tuple[bytes, bytes]], timeout: float | None) -> Process:
        """A command in the background."""
        return Process(self, await self.open(b"R", fields), timeout=timeout)

    async def cancel(self, exchange: Exchange) -> None:
        """Have a command killed and take its last answer, or give the sandbox up."""
        with anyio.CancelScope(shield=True):
            try:
                await self.send(encode(b"C", exchange.number))
                while (await self.answer(exchange, CANCEL_LIMIT)).kind == b"O":
                    pass
            except SandboxError:
                self.lose("a cancelled command could not be stopped")

    def lose(self, reason: str) -> SandboxLost:
        """Note why it is of no use any more (the first reason stays), and wake all who wait."""
        self.lost = self.lost or reason
        for exchange in self._exchanges.values():
            exchange.woken.set()
        return SandboxLost(f"{self.name}: {self.lost}")

    async def aclose(self) -> None:
        """Hang up: the supervisor sees the end of its stdin, and the container goes."""
        self.lose("it was closed")
        await anyio.aclose_forcefully(self._stream)

    def hand_over(self) -> tuple[anyio.abc.ByteStream, bytes, bool]:
        """The stream, what was read of it and not used, and whether it is plain, for another link
        to go on with. Nothing may be under way here, now or later; closing still hangs up."""
        if self._exchanges.keys() != {0} or self._reading:
            raise SandboxUsageError(f"{self.name} is in use: it can't be handed over")
        return self._stream, self._incoming.rest(), self._incoming.plain

    def is_connected(self) -> bool:
        """Whether the stream is open, as far as can be told without a request."""
        raw = self._stream.extra(anyio.abc.SocketAttribute.raw_socket, None)
        if raw is None or self.lost:
            return self.lost is None
        probe = socket.socket(fileno=raw.fileno())  # raw may be a wrapper that can't receive
        try:
            return probe.recv(1, PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            probe.detach()

    async def _progress(self, exchange: Exchange) -> None:
        """Read, or wait for the one who reads."""
        if self.lost:
            raise SandboxLost(f"{self.name}: {self.lost}")
        if not self._reading:
            await self._read()
            return
        exchange.woken = anyio.Event()
        exchange.waiting = True
        try:
            await exchange.woken.wait()
        finally:
            exchange.waiting = False

    def _hand_on(self) -> None:
        """Wake one who waits, to read in our place."""
        for other in self._exchanges.values():
            if other.waiting and not other.woken.is_set():
                other.woken.set()
                return

    async def _read(self) -> None:
        self._reading = True
        try:
            self._incoming.feed(await self._stream.receive(1 << 20))
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as end:
            complaint = self._incoming.complaint.decode("utf-8", "replace").strip()
            last = complaint.splitlines()[-1:] or [str(end) or "no message"]
            raise self.lose(f"its container ended ({last[0]})") from None
        finally:
            self._reading = False
        while (frame := self._incoming.next()) is not None:
            exchange = self._exchanges.get(frame.request)
            if exchange is not None:
                exchange.frames.append(frame)
                exchange.woken.set()
