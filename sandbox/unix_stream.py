"""A byte stream over a Unix socket that may be cancelled at any moment.

anyio's own leaves a callback behind when a receive is cancelled in the instant in which bytes
arrive; asyncio then reports an InvalidStateError (harmless, but loud). This one waits by
`anyio.wait_readable`, which has no such race.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel


class UnixStream(anyio.abc.ByteStream):
    """One connection; one reader and one writer at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Raises EndOfStream, BrokenResourceError, ClosedResourceError."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                data = self._connection.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._connection)
            except OSError as problem:
                raise self._broken() from problem
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        """Raises BrokenResourceError, ClosedResourceError."""
        await anyio.lowlevel.checkpoint()
        view = memoryview(item)
        while view:
            try:
                view = view[self._connection.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._connection)
            except OSError as problem:
                raise self._broken() from problem

    async def send_eof(self) -> None:
        """No more will be sent."""
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError as problem:
            raise self._broken() from problem

    async def aclose(self) -> None:
        """Close; whoever waits gets ClosedResourceError."""
        if self._connection.fileno() >= 0:
            anyio.notify_closing(self._connection)
            self._connection.close()
        await anyio.lowlevel.checkpoint()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The socket itself, as of any socket stream."""
        return {anyio.abc.SocketAttribute.raw_socket: lambda: self._connection}

    def _broken(self) -> anyio.BrokenResourceError | anyio.ClosedResourceError:
        closed = self._connection.fileno() < 0
        return anyio.ClosedResourceError() if closed else anyio.BrokenResourceError()


async def connect_unix(path: str) -> UnixStream:
    """A connection to a listening socket. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)  # a local listener answers at once, or refuses
    except BaseException:
        connection.close()
        raise
    return UnixStream(connection)
