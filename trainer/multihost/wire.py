"""Messages between two processes: a JSON header and arrays, in frames, over one TCP connection.

    frame = header's bytes (4) | arrays' bytes (8) | header, JSON | arrays, one after the other

A thread of its own reads, so that the other side's end is known at once, whatever this one does.
Nothing is unpickled: what arrives is text and numbers.
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SILENCE = 60.0
"""Seconds that the other machine may leave what was sent without an answer."""
_LENGTHS = struct.Struct(">IQ")
_MOST_HEADER = 64 << 20
_MOST_ARRAYS = 64 << 30
_LAST = ("end", "refused")
"""Messages after which the sender may hang up."""
_KINDS = "biuf"
"""Kinds of numbers that an array may hold."""


class LineLost(Exception):
    """The other side is gone; the message says how that showed."""


class LineSilent(Exception):
    """The other side said nothing within the limit."""


@dataclass(frozen=True, slots=True)
class Message:
    """One frame."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    arrays: list[np.ndarray] = field(default_factory=list)


class Line:
    """A connection on which both sides send and receive messages; usable from several threads."""

    def __init__(
        self, connection: socket.socket, on_lost: Callable[[str], None] = lambda words: None
    ) -> None:
        """`on_lost` is called once, in the reading thread, when the other side is gone."""
        self._socket = connection
        self._on_lost = on_lost
        self._sending = threading.Lock()
        self._closing = False
        self._read: queue.Queue[Message | None] = queue.Queue()
        self.lost = ""
        """How the other side's end showed; empty while it is there."""
        _watch(connection)
        threading.Thread(target=self._run, name="learner line", daemon=True).start()

    def send(self, kind: str, arrays: Sequence[np.ndarray] = (), **fields: Any) -> None:
        """Send one message; LineLost when the other side does not take it."""
        frame = encode(kind, arrays, fields)
        with self._sending:
            try:
                for part in frame:
                    self._socket.sendall(part)
            except OSError as error:
                self.lost = self.lost or _words(error)
                raise LineLost(self.lost) from None

    def receive(self, limit: float | None) -> Message:
        """The next message; LineLost once there will be none, LineSilent after `limit` seconds.

        Without a limit it waits as long as the other side's machine answers.
        """
        try:
            found = self._read.get(timeout=limit)
        except queue.Empty:
            raise LineSilent(f"no answer in {limit:.0f} s") from None
        if found is None:
            self._read.put(None)
            raise LineLost(self.lost)
        return found

    def close(self) -> None:
        """Hang up; not a loss."""
        self._closing = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _run(self) -> None:
        words = "it hung up"
        try:
            while (message := decode(self._exactly)) is not None:
                self._closing |= message.kind in _LAST
                if message.kind == "failed":
                    self.lost = str(message.fields["error"])
                self._read.put(message)
        except (OSError, ValueError) as error:
            words = _words(error)
        self.lost = self.lost or words
        self._read.put(None)
        if not self._closing:
            self._on_lost(self.lost)

    def _exactly(self, size: int) -> bytearray:
        found = bytearray(size)
        view, filled = memoryview(found), 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                return found[:filled]
            filled += count
        return found


def encode(kind: str, arrays: Sequence[np.ndarray], fields: dict[str, Any]) -> list[bytes]:
    """The parts of a frame."""
    solid = [np.ascontiguousarray(array) for array in arrays]
    shapes = [[str(array.dtype), list(array.shape)] for array in solid]
    header = json.dumps({"kind": kind, "arrays": shapes, "fields": fields}).encode()
    lengths = _LENGTHS.pack(len(header), sum(array.nbytes for array in solid))
    return [lengths + header, *(array.tobytes() for array in solid if array.nbytes)]


def decode(exactly: Callable[[int], bytearray]) -> Message | None:
    """The next frame of what `exactly(size)` reads; None at the end between two frames.

    Raises ValueError for what is no frame, or is cut off.
    """
    lengths = exactly(_LENGTHS.size)
    if not lengths:
        return None
    header_size, arrays_size = _LENGTHS.unpack(_whole(lengths, _LENGTHS.size))
    if header_size > _MOST_HEADER or arrays_size > _MOST_ARRAYS:
        raise ValueError("that is no message of a learner")
    header = json.loads(_whole(exactly(header_size), header_size))
    data = _whole(exactly(arrays_size), arrays_size) if arrays_size else bytearray()
    arrays, start = [], 0
    for name, shape in header["arrays"]:
        dtype = np.dtype(name)
        if dtype.kind not in _KINDS:
            raise ValueError(f"an array of {dtype} is no part of a message")
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(data, dtype, count, start).reshape(shape))
        start += count * dtype.itemsize
    return Message(header["kind"], header["fields"], arrays)


def _whole(found: bytearray, size: int) -> bytearray:
    if len(found) != size:
        raise ValueError("it hung up in the middle of a message")
    return found


def _watch(connection: socket.socket) -> None:
    """Have the kernel find out that the other machine is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5)):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    milliseconds = int(SILENCE * 1000)  # of what is probed, too
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
