"""A lease's bytes as a stream, so that a `Link` can speak over it as over a container's own."""

from __future__ import annotations

import anyio
import anyio.abc

from patchgym.sandbox.errors import PatchgymError

from .peer import EndOfTalk, Talk


class TalkStream(anyio.abc.ByteStream):
    """The driver's end of a lease's talk. Closing it ends the lease."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._rest = b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Raises EndOfStream when the container ended, BrokenResourceError when its host is lost;
        the message says so."""
        if not self._rest:
            try:
                self._rest = await self._talk.receive()
            except EndOfTalk:
                raise anyio.EndOfStream from None
            except PatchgymError as error:
                raise anyio.BrokenResourceError(str(error)) from None
        data, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return data

    async def send(self, item: bytes) -> None:
        """Raises BrokenResourceError when nobody is there to get it."""
        if self._talk.over:
            raise anyio.BrokenResourceError
        self._talk.send(item)
        await self._talk.room()

    async def send_eof(self) -> None:
        """The supervisor takes the end of its input for the end of the lease."""
        await self.aclose()

    async def aclose(self) -> None:
        """End the lease; does not wait for it."""
        self._talk.cancel()
