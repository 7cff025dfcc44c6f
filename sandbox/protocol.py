"""The host's side of the supervisor's protocol: frames to bytes and back, no I/O.

The format is documented in `supervisor.py`, which can't import anything and so repeats the codec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .errors import SandboxUsageError
from .result import CommandResult, Output

VERSION = b"2"
FRAME_LIMIT = 256 << 20
PIECE = 4 << 20
ANSWER_LIMIT = 30.0  # seconds past a command's own limit until the supervisor counts as gone
WINDOW = 1 << 20
"""Bytes of streamed output that the supervisor sends ahead of our acknowledgements."""

Fields = Iterable[tuple[bytes, bytes]]


def encode(kind: bytes, number: int, fields: Fields = ()) -> bytes:
    """One frame of request `number`. Raises SandboxUsageError when it is over 256 MiB."""
    parts = [kind, struct.pack(">I", number)]
    for tag, data in fields:
        parts += (tag, struct.pack(">I", len(data)), data)
    size = sum(map(len, parts))
    if size > FRAME_LIMIT:
        raise SandboxUsageError(f"{size >> 20} MiB in one request; the limit is 256 MiB")
    return b"".join((struct.pack(">I", size), *parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An answer of the supervisor."""

    kind: bytes
    """One of H, O, D, F, E, K."""
    request: int
    """Number of the request that it answers."""
    fields: dict[bytes, bytes]
    """Field bytes by tag."""

    def number(self, tag: bytes, default: int = 0) -> int:
        """A decimal field, or `default` where it is missing."""
        return int(self.fields.get(tag, default))


def decode(body: bytes) -> Frame:
    """The frame in `body`, which comes without its length."""
    fields: dict[bytes, bytes] = {}
    (number,) = struct.unpack_from(">I", body, 1)
    at = 5
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at + 1)
        fields[body[at : at + 1]] = body[at + 5 : at + 5 + size]
        at += 5 + size
    return Frame(kind=body[:1], request=number, fields=fields)


class StreamSplitter:
    """Docker's attach stream to pieces of stdout (1) and stderr (2)."""

    def __init__(self) -> None:
        self._raw = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes off the wire: stream:u8 zero:3 length:u32 bytes, repeated."""
        self._raw += data
        while len(self._raw) >= 8:
            stream, size = struct.unpack_from(">BxxxI", self._raw)
            if len(self._raw) < 8 + size:
                return
            piece = bytes(self._raw[8 : 8 + size])
            del self._raw[: 8 + size]
            yield stream, piece

    def rest(self) -> bytes:
        """The bytes that were fed and are no whole piece yet."""
        return bytes(self._raw)


class Demultiplexer:
    """Docker's attach stream to frames: stdout carries frames, stderr a crash message.

    A `plain` stream, of a supervisor without Docker, is stdout alone.
    """

    def __init__(self, *, plain: bool = False) -> None:
        self.plain = plain
        self._splitter = StreamSplitter()
        self._out = bytearray()
        self.complaint = b""
        """The last bytes that the supervisor wrote to stderr."""

    def feed(self, data: bytes) -> None:
        """Take bytes off the wire."""
        if self.plain:
            self._out += data
            return
        for stream, piece in self._splitter.feed(data):
            if stream == 2:
                self.complaint = (self.complaint + piece)[-2000:]
            else:
                self._out += piece

    def rest(self) -> bytes:
        """The bytes that were fed and are no whole frame yet, as they would be fed again."""
        out = bytes(self._out)
        if self.plain:
            return out
        header = struct.pack(">BxxxI", 1, len(out)) if out else b""
        return header + out + self._splitter.rest()

    def next(self) -> Frame | None:
        """The next whole frame, or None when more bytes are needed."""
        if len(self._out) < 4:
            return None
        (size,) = struct.unpack_from(">I", self._out)
        if len(self._out) < 4 + size:
            return None
        body = bytes(self._out[4 : 4 + size])
        del self._out[: 4 + size]
        return decode(body)


def run_fields(
    command: str | Sequence[str],
    *,
    timeout: float | None,
    cwd: str,
    environment: Iterable[tuple[str, str]],
    stdin: bytes,
    output_limit: int,
    report: bool = False,
    stream: bool = False,
    stdin_open: bool = False,
) -> list[tuple[bytes, bytes]]:
    """The fields of an R frame; `timeout` in seconds, `output_limit` in bytes a stream."""
    if isinstance(command, str):
        words = [(b"c", _clean(command))]
    else:
        words = [(b"a", _clean(word)) for word in command]
    if not words or (timeout is not None and timeout <= 0):
        raise SandboxUsageError("a command needs at least one word and a timeout above 0")
    milliseconds = 0 if timeout is None else max(int(timeout * 1000), 1)
    return [
        *words,
        *((b"e", _clean(f"{key}={value}")) for key, value in environment),
        (b"d", _clean(cwd)),
        (b"t", b"%d" % milliseconds),
        (b"l", b"%d" % output_limit),
        (b"p", b"%d" % report),
        (b"s", b"%d" % stream),
        (b"w", b"%d" % stdin_open),
        (b"i", stdin),
    ]


def _clean(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise SandboxUsageError("a command, folder or variable can't hold a zero byte")
    return data


def result_of(frame: Frame) -> CommandResult:
    """The D frame as a result."""
    timed_out = frame.number(b"T") > 0
    streams = [
        Output(head=frame.fields[head], tail=frame.fields[tail], dropped=frame.number(dropped))
        for head, tail, dropped in ((b"1", b"3", b"5"), (b"2", b"4", b"6"))
    ]
    limits = {
        "time": timed_out,
        "memory": frame.number(b"O") > 0,
        "pids": frame.number(b"L") > 0,
        "disk": frame.number(b"F") > 0,
        "output": any(stream.dropped for stream in streams),
        "report": frame.number(b"R") > 0,
    }
    exit_code = frame.fields.get(b"x")
    signal = frame.fields.get(b"s")
    peak = frame.fields.get(b"m")
    return CommandResult(
        exit_code=None if exit_code is None else int(exit_code),
        signal=None if signal is None else int(signal),
        timed_out=timed_out,
        oom_killed=frame.number(b"O") > 0,
        limits_hit=tuple(name for name, hit in limits.items() if hit),
        duration=frame.number(b"w") / 1e6,
        cpu_seconds=frame.number(b"u") / 1e6,
        peak_memory=None if peak is None else int(peak),
        stdout=streams[0],
        stderr=streams[1],
        report=frame.fields.get(b"r", b""),
        killed=frame.number(b"k"),
    )
