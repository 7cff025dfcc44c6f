"""The way out of a sandbox with an allow-list: an HTTP proxy in the owner's process.

The sandbox's only network device is the loopback. The holder of its network listens there and
carries connections over its own stdin and stdout (see native/relay.c), so nothing but this module
decides what is reached, and names are looked up here. CONNECT (for TLS) and plain HTTP are served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
import anyio.abc
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from .protocol import WINDOW, Demultiplexer, Frame, encode

HEAD_LIMIT = 32768
CONNECT_LIMIT = 20.0  # seconds to reach a server
PORTS = (80, 443)
HOP_HEADERS = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive")


def allows(patterns: Sequence[str], host: str, port: int) -> bool:
    """Whether a server is among `patterns`: a name, or `*.name` for every name under it.

    A pattern with `:port` allows that port, one without 80 and 443.
    """
    name = host.lower().rstrip(".")
    for pattern in patterns:
        wanted, _, only = pattern.lower().partition(":")
        wanted = wanted.rstrip(".")
        fits = name == wanted or (wanted.startswith("*.") and name.endswith(wanted[1:]))
        if fits and (str(port) == only if only else port in PORTS):
            return True
    return False


@dataclass(slots=True, eq=False)
class _Client:
    """One connection out of the sandbox."""

    number: int
    coming: MemoryObjectSendStream[bytes]
    come: MemoryObjectReceiveStream[bytes]
    unacknowledged: int = 0
    """Bytes sent to it that it has not taken."""
    moved: anyio.Event = field(default_factory=anyio.Event)


@dataclass(frozen=True, slots=True)
class _Request:
    """What a client asks for first."""

    host: str
    port: int
    forward: bytes
    """Bytes to send to the server; empty for CONNECT."""
    connect: bool


class Proxy:
    """Serves one holder until its stream ends."""

    def __init__(self, stream: anyio.abc.ByteStream, early: bytes, allowed: Sequence[str]) -> None:
        self._stream = stream
        self._frames = Demultiplexer()
        self._frames.feed(early)
        self._allowed = tuple(allowed)
        self._clients: dict[int, _Client] = {}
        self._writing = anyio.Lock()

    async def serve(self) -> None:
        """Until the holder is gone."""
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    while (frame := self._frames.next()) is not None:
                        self._take(frame, tasks)
                    self._frames.feed(await self._stream.receive(1 << 18))
        except* (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    def _take(self, frame: Frame, tasks: anyio.abc.TaskGroup) -> None:
        client = self._clients.get(frame.request)
        if frame.kind == b"N":
            # unbounded, but the relay sends at most a window ahead
            coming, come = anyio.create_memory_object_stream[bytes](float("inf"))
            client = _Client(frame.request, coming, come)
            self._clients[frame.request] = client
            tasks.start_soon(self._serve_client, client)
        elif client is None:
            return
        elif frame.kind == b"B":
            client.coming.send_nowait(frame.fields[b"b"])
        elif frame.kind == b"X":
            client.coming.close()
        elif frame.kind == b"A":
            client.unacknowledged -= frame.number(b"b")
            client.moved.set()

    async def _serve_client(self, client: _Client) -> None:
        try:
            request = await self._first_request(client)
            if request is not None:
                await self._connect(client, request)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # one of the two hung up
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self._send(b"X", client.number)
            client.coming.close()
            client.come.close()
            self._clients.pop(client.number, None)

    async def _first_request(self, client: _Client) -> _Request | None:
        """The request, allowed; or None after telling the client why not."""
        head = b""
        while b"\r\n\r\n" not in head:
            piece = await self._receive(client)
            if piece is None or len(head) > HEAD_LIMIT:
                return None
            head += piece
        request = parse(head)
        if request is None:
            await self._refuse(client, "400 Bad Request", "this proxy speaks CONNECT and HTTP")
        elif not allows(self._allowed, request.host, request.port):
            text = f"{request.host}:{request.port} is not among what this sandbox may reach"
            await self._refuse(client, "403 Forbidden", text)
        else:
            return request
        return None

    async def _connect(self, client: _Client, request: _Request) -> None:
        try:
            with anyio.fail_after(CONNECT_LIMIT):
                server = await anyio.connect_tcp(request.host, request.port)
        except (OSError, TimeoutError) as problem:
            reason = str(problem) or "no answer"
            await self._refuse(client, "502 Bad Gateway", f"can't reach {request.host}: {reason}")
            return
        async with server:
            if request.connect:
                await self._give(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
            if request.forward:
                await server.send(request.forward)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._to_server, client, server)
                await self._to_client(client, server)
                tasks.cancel_scope.cancel()

    async def _to_server(self, client: _Client, server: anyio.abc.SocketStream) -> None:
        try:
            while (piece := await self._receive(client)) is not None:
                await server.send(piece)
            await server.send_eof()
        except (OSError, anyio.BrokenResourceError):
            pass  # the server's end ends the other direction

    async def _to_client(self, client: _Client, server: anyio.abc.SocketStream) -> None:
        try:
            while True:
                await self._give(client, await server.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return

    async def _receive(self, client: _Client) -> bytes | None:
        try:
            piece = await client.come.receive()
        except anyio.EndOfStream:
            return None
        await self._send(b"A", client.number, [(b"b", b"%d" % len(piece))])
        return piece

    async def _give(self, client: _Client, data: bytes) -> None:
        while client.unacknowledged >= WINDOW:
            client.moved = anyio.Event()
            await client.moved.wait()
        client.unacknowledged += len(data)
        await self._send(b"B", client.number, [(b"b", data)])

    async def _refuse(self, client: _Client, status: str, reason: str) -> None:
        body = f"patchgym: {reason}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        await self._give(client, head.encode() + body)

    async def _send(
        self, kind: bytes, number: int, fields: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        # whole frames only; the cancelled tasks of one client must not cut another's
        with anyio.CancelScope(shield=True):
            async with self._writing:
                await self._stream.send(encode(kind, number, fields))


def parse(head: bytes) -> _Request | None:
    """A request's head and what follows it, or None when it is not one for a proxy."""
    first, _, rest = head.partition(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3:
        return None
    method, target, version = words
    try:
        if method == b"CONNECT":
            parts = urlsplit("//" + target.decode("ascii"))
            return _Request(parts.hostname or "", parts.port or 443, b"", True)
        parts = urlsplit(target.decode("ascii"))
        port = parts.port or 80
    except ValueError:
        return None
    if parts.scheme != "http" or not parts.hostname:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers, _, body = rest.partition(b"\r\n\r\n")
    kept = [
        line
        for line in headers.split(b"\r\n")
        if line.partition(b":")[0].strip().lower() not in HOP_HEADERS
    ]
    lines = [b"%s %s %s" % (method, path.encode(), version), *kept, b"Connection: close"]
    return _Request(parts.hostname, port, b"\r\n".join(lines) + b"\r\n\r\n" + body, False)
