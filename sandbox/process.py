"""A command that runs in the background of a sandbox, with its streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import anyio

from .protocol import ANSWER_LIMIT, PIECE, Frame, encode, result_of
from .result import CommandResult

if TYPE_CHECKING:
    from .link import Exchange, Link

StreamName = Literal["stdout", "stderr"]
ACKNOWLEDGE = 1 << 18  # bytes used up before the supervisor is told so


class Process:
    """A started command. `async with` kills it at the block's end when it still runs.

    It ends by itself, at its timeout, by `kill()`, or with the lease; `wait()` tells how.
    """

    def __init__(self, link: Link, exchange: Exchange, *, timeout: float | None) -> None:
        self._link = link
        self._exchange = exchange
        self._limit = None if timeout is None else timeout + ANSWER_LIMIT
        self._result: CommandResult | None = None
        self._used = 0
        self._taking = anyio.Lock()

    async def output(self) -> AsyncIterator[tuple[StreamName, bytes]]:
        """Its output as it comes, until both streams end (only when started with `stream=True`).

        A reader that falls behind by a mebibyte makes the command wait. What is yielded is also in
        the result, as far as its output limit reaches.
        """
        while (frame := await self._next()) is not None:
            data = frame.fields[b"b"]
            yield ("stdout" if frame.number(b"n") == 1 else "stderr"), data
            await self._acknowledge(len(data))

    async def write(self, data: bytes) -> None:
        """Write to its stdin (only when started with `stdin_open=True`), waiting until it took it.

        Raises SandboxUsageError when it does not read its stdin, or has ended.
        """
        for start in range(0, max(len(data), 1), PIECE):
            await self._input([(b"i", data[start : start + PIECE])])

    async def close_stdin(self) -> None:
        """The end of its stdin."""
        await self._input([(b"z", b"1")])

    async def wait(self) -> CommandResult:
        """Its end; the output that nobody read is dropped beyond the output limit."""
        while (frame := await self._next()) is not None:
            await self._acknowledge(len(frame.fields[b"b"]))
        assert self._result is not None
        return self._result

    async def kill(self) -> CommandResult:
        """Kill it and all that it started; its result. Nothing happens when it has ended."""
        if self._result is None:
            await self._link.send(encode(b"C", self._exchange.number))
            self._limit = ANSWER_LIMIT
        return await self.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._result is None and self._link.lost is None:
            with anyio.CancelScope(shield=True):
                await self.kill()

    async def _input(self, fields: list[tuple[bytes, bytes]]) -> None:
        number = b"%d" % self._exchange.number
        exchange = await self._link.open(b"I", [(b"n", number), *fields])
        try:
            self._link.checked(await self._link.answer(exchange, self._limit), b"K")
        finally:
            self._link.close(exchange)

    async def _next(self) -> Frame | None:
        """The next piece of output; None at the end."""
        async with self._taking:
            if self._result is not None:
                return None
            frame = await self._link.answer(self._exchange, self._limit)
            if frame.kind == b"O":
                return frame
            self._link.close(self._exchange)
            self._result = result_of(self._link.checked(frame, b"D"))
            return None

    async def _acknowledge(self, size: int) -> None:
        self._used += size
        if self._used >= ACKNOWLEDGE and self._result is None:
            used, self._used = self._used, 0
            fields = [(b"n", b"%d" % self._exchange.number), (b"b", b"%d" % used)]
            await self._link.send(encode(b"A", 0, fields))
