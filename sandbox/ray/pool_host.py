"""A sandbox host: an actor with a local pool, whose leases are carried to the driver as bytes.

lease(...)  talk: first what the sandbox is, then the supervisor's bytes, both ways; its end is
            the end of the lease, however it comes about
commit(name), expect(sources), statistics()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import anyio
import anyio.abc

from patchgym.sandbox.container import Sandbox, SandboxSnapshot
from patchgym.sandbox.errors import EngineUnavailable, SandboxUsageError
from patchgym.sandbox.local import LocalPool
from patchgym.sandbox.pool import Pool
from patchgym.sandbox.pool_core import PoolStatistics
from patchgym.sandbox.spec import SandboxSpec

from .conversation import Conversations
from .held import Held
from .peer import EndOfTalk, Handler, Talk

Kind = Literal["docker", "local"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """What a lease's talk begins with."""

    name: str
    """The container's."""
    image: str
    """What it started from."""
    commit: str | None
    """What `diff()` compares with, where it started from a snapshot."""
    spec: SandboxSpec
    """The sandbox's own: the local fake's has other folders."""
    early: bytes
    """What the supervisor had sent already."""
    plain: bool
    """Its stream is not Docker's."""


class PoolHost:
    """The service of a `SandboxHost`."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._held: Held[Pool | LocalPool] = Held()
        self._made: tuple[SandboxSpec, int] | None = None
        self._leased: dict[str, Sandbox] = {}

    def handlers(self) -> Mapping[str, Handler]:
        """See `Service`."""
        return {
            "open": self.open,
            "lease": self.lease,
            "commit": self.commit,
            "expect": self.expect,
            "statistics": self.statistics,
        }

    async def aclose(self) -> None:
        """Close the pool: every container of it goes."""
        await self._held.aclose()

    async def open(self, talk: Talk, spec: SandboxSpec, size: int) -> None:
        """Open the pool; nothing when there is one like it. Raises as `Pool` does."""
        if self._held.value is not None and self._made == (spec, size):
            return
        await self._held.aclose()
        make = Pool if self._kind == "docker" else LocalPool
        await self._held.open(make(spec, size=size))
        self._made = spec, size

    async def lease(
        self,
        talk: Talk,
        timeout: float,
        borrower: str,
        image: str | None,
        snapshot: SandboxSnapshot | None,
    ) -> None:
        """Lease, and carry bytes until the talk is cancelled or the container ends."""
        lease = self._pool().lease(
            timeout=timeout, borrower=borrower, image=image, snapshot=snapshot
        )
        async with lease as sandbox:
            stream, early, plain = sandbox.hand_over()
            self._leased[sandbox.name] = sandbox
            try:
                talk.send(
                    Leased(
                        name=sandbox.name,
                        image=sandbox.image,
                        commit=snapshot.commit if snapshot else None,
                        spec=sandbox.spec,
                        early=early,
                        plain=plain,
                    )
                )
                await _carry(talk, stream)
            finally:
                del self._leased[sandbox.name]

    async def commit(self, talk: Talk, name: str) -> str:
        """An image of a leased sandbox's own layer, on this host."""
        if name not in self._leased:
            raise SandboxUsageError(f"the lease of {name} has ended: take another")
        return await self._leased[name].commit()

    async def expect(self, talk: Talk, sources: Sequence[str | SandboxSnapshot]) -> None:
        """See `Pool.expect`."""
        pool = self._pool()
        if isinstance(pool, Pool):
            pool.expect(sources)

    async def statistics(self, talk: Talk) -> PoolStatistics | None:
        """See `Pool.statistics`; None of a local fake."""
        pool = self._pool()
        return pool.statistics() if isinstance(pool, Pool) else None

    def _pool(self) -> Pool | LocalPool:
        if self._held.value is None:
            raise EngineUnavailable("the pool is closed")
        return self._held.value


class SandboxHost(Conversations):
    """The actor."""

    def __init__(self, kind: Kind, silence: float) -> None:
        super().__init__(PoolHost(kind), silence=silence)


async def _carry(talk: Talk, stream: anyio.abc.ByteStream) -> None:
    async with anyio.create_task_group() as tasks:

        async def inwards() -> None:
            while True:
                await stream.send(await talk.receive())

        tasks.start_soon(inwards)
        try:
            while True:
                talk.send(await stream.receive(1 << 20))
                await talk.room()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the container ended: so does the talk, and the driver's end sees it
        except EndOfTalk:
            pass
        tasks.cancel_scope.cancel()
