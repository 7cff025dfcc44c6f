"""The last resort: a container whose PID 1 is the image's own sh, driven by `docker exec`.

For machines that there is no static supervisor for, and images without Python. What it can't do:
see docs/sandbox.md. A timeout kills everything in the container, earlier commands' background
processes too, because a shell can't tell whose is whose.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio
import anyio.abc

from .engine import Engine
from .errors import SandboxError, SandboxLost, SandboxUsageError
from .process import Process
from .protocol import ANSWER_LIMIT, Frame, StreamSplitter
from .supervisor import Kept

KILL_ALL = ("sh", "-c", "kill -9 -1")
GET = 'test -f "$1" && tail -c "+$(($2 + 1))" -- "$1" | head -c "$3"'
PUT = (
    'case "$1" in */*) mkdir -p -- "${1%/*}";; esac; '
    'if [ "$2" = 1 ]; then cat >>"$1"; else cat >"$1"; fi'
)


class ShellLink:
    """A container of that kind; offers what `Link` offers to a sandbox, as far as it can."""

    def __init__(self, name: str, engine: Engine, stream: anyio.abc.ByteStream) -> None:
        self.lost: str | None = None
        """Why it can't be used any more, or None."""
        self._name = name
        self._engine = engine
        self._stream = stream

    async def ask(
        self, kind: bytes, fields: Sequence[tuple[bytes, bytes]], expected: bytes
    ) -> Frame:
        """G and P, by the image's own tools."""
        one = {
            tag: value.decode("utf-8", "surrogateescape") for tag, value in fields if tag != b"b"
        }
        if kind == b"G":
            words = ["sh", "-c", GET, "sh", one[b"f"], one[b"o"], one[b"l"]]
            done = await self._exec(words, b"", int(one[b"l"]) * 2, ANSWER_LIMIT)
            reply = {b"b": bytes(done.streams[0].head + done.streams[0].tail)}
        else:
            words = ["sh", "-c", PUT, "sh", one[b"f"], one.get(b"a", "0")]
            done = await self._exec(words, dict(fields)[b"b"], 4096, ANSWER_LIMIT)
            reply = {}
        if done.exit_code != 0:
            said = bytes(done.streams[1].head).decode("utf-8", "replace").strip()
            raise SandboxUsageError(said.splitlines()[-1] if said else "no such regular file")
        return Frame(kind=expected, request=0, fields=reply)

    async def command(self, fields: Sequence[tuple[bytes, bytes]], limit: float | None) -> Frame:
        """A command from its start to its D frame; killed if cancelled."""
        one = dict(fields)
        if one.get(b"p") == b"1":
            raise SandboxUsageError("a report needs a supervisor; this image only has a shell")
        words = [value.decode("utf-8", "surrogateescape") for tag, value in fields if tag == b"a"]
        if b"c" in one:
            words = ["sh", "-c", one[b"c"].decode("utf-8", "surrogateescape")]
        environment = [v.decode("utf-8", "surrogateescape") for tag, v in fields if tag == b"e"]
        started = time.monotonic()
        done = await self._exec(
            [
                "sh",
                "-c",
                'cd -- "$1" || exit 127; shift; exec "$@"',
                "sh",
                one[b"d"].decode(),
                *words,
            ],
            one.get(b"i", b""),
            int(one[b"l"]),
            int(one[b"t"]) / 1000,
            environment,
        )
        seconds = time.monotonic() - started
        return Frame(kind=b"D", request=0, fields=done.fields(seconds))

    async def start(self, fields: Sequence[tuple[bytes, bytes]], timeout: float | None) -> Process:
        """Not here."""
        raise SandboxUsageError(
            "background commands need a supervisor; this image only has a shell"
        )

    def is_connected(self) -> bool:
        """Whether nothing has gone wrong yet."""
        return self.lost is None

    async def aclose(self) -> None:
        """Hang up: the shell sees the end of its stdin, and the container goes."""
        self.lost = self.lost or "it was closed"
        await anyio.aclose_forcefully(self._stream)

    async def _exec(
        self,
        words: Sequence[str],
        stdin: bytes,
        keep: int,
        seconds: float,
        environment: Sequence[str] = (),
    ) -> _Ended:
        if self.lost:
            raise SandboxLost(f"{self._name}: {self.lost}")
        try:
            return await self._converse(words, stdin, keep, seconds, environment)
        except SandboxLost:
            raise
        except SandboxError as error:
            self.lost = self.lost or str(error)
            raise SandboxLost(f"{self._name}: {self.lost}") from error

    async def _converse(
        self,
        words: Sequence[str],
        stdin: bytes,
        keep: int,
        seconds: float,
        environment: Sequence[str],
    ) -> _Ended:
        number, stream, early = await self._engine.exec_start(
            self._name, words, environment=environment
        )
        ended = _Ended(keep)
        try:
            with anyio.move_on_after(seconds) as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_feed, stream, stdin)
                    await ended.read(stream, early)
                    tasks.cancel_scope.cancel()
            if scope.cancelled_caught:
                ended.timed_out = True
                await self._kill_all()
            else:
                ended.exit_code = await self._exit_code(number)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._kill_all()
            raise
        finally:
            await anyio.aclose_forcefully(stream)
        return ended

    async def _kill_all(self) -> None:
        _, stream, _ = await self._engine.exec_start(self._name, KILL_ALL)
        with anyio.move_on_after(ANSWER_LIMIT):
            await _Ended(4096).read(stream, b"")
        await anyio.aclose_forcefully(stream)

    async def _exit_code(self, number: str) -> int:
        with anyio.fail_after(ANSWER_LIMIT):
            while True:
                code = await self._engine.exec_exit_code(number)
                if code is not None:
                    return code
                await anyio.sleep(0.005)


class _Ended:
    """An exec's output, and how it ended."""

    def __init__(self, keep: int) -> None:
        self.streams = (Kept(keep), Kept(keep))
        self.exit_code: int | None = None
        self.timed_out = False

    async def read(self, stream: anyio.abc.ByteStream, early: bytes) -> None:
        """To its end."""
        splitter = StreamSplitter()
        data = early
        while True:
            for number, piece in splitter.feed(data):
                self.streams[number - 1].add(piece)
            try:
                data = await stream.receive(1 << 20)
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return

    def fields(self, seconds: float) -> dict[bytes, bytes]:
        """As those of a D frame."""
        found = {b"w": b"%d" % int(seconds * 1e6), b"T": b"%d" % self.timed_out}
        if self.exit_code is not None:
            killed = self.exit_code > 128
            found[b"s" if killed else b"x"] = b"%d" % (self.exit_code - 128 * killed)
        for kept, tags in zip(self.streams, (b"135", b"246"), strict=True):
            kept.trim()
            values = (bytes(kept.head), bytes(kept.tail), b"%d" % kept.dropped)
            found |= {tags[i : i + 1]: value for i, value in enumerate(values)}
        return found


async def _feed(stream: anyio.abc.ByteStream, stdin: bytes) -> None:
    try:
        await stream.send(stdin)
        await stream.send_eof()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # it does not read its stdin, or has ended
