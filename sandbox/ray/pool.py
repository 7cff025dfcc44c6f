"""The pool over many machines: `Pool`'s own calls, with an actor on every Docker host behind them.

    async with RayPool(SandboxSpec(image=...), size=64, address="head:6379") as pool:
        async with pool.lease(timeout=60) as sandbox:
            await sandbox.run("pytest -q", timeout=60)

A lease goes to the least loaded host, with a preference for one that has its image warm; a leased
`Sandbox` is the ordinary one, whose bytes travel through Ray. Rollouts that run beside their
sandbox, so that no command crosses the network at all, are `patchgym.trainer.ray`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import anyio

from patchgym.sandbox import telemetry
from patchgym.sandbox.container import Sandbox, SandboxSnapshot
from patchgym.sandbox.errors import (
    EngineUnavailable,
    LeaseTimeout,
    SandboxLost,
    SandboxUnavailable,
    SandboxUsageError,
)
from patchgym.sandbox.link import Link
from patchgym.sandbox.pool_core import HostStatistics, PoolStatistics, Source
from patchgym.sandbox.spec import SandboxSpec

from .cluster import connected
from .demand import Demand
from .hosts import SILENCE, HostPlan, Hosts
from .line import Line
from .peer import EndOfTalk, Talk
from .placement import Place, Placement
from .pool_host import Kind, Leased, SandboxHost
from .stream import TalkStream

RESOURCE = "sandbox_host"
"""Custom resource that nodes with a Docker daemon declare."""
WIND_UP = 5.0  # seconds for a host to notice that a lease that was not wanted any more is over


class RayPool:
    """Sandboxes of one spec on the hosts of a Ray cluster. An async context manager, for asyncio.

    `size` is shared out evenly over the hosts that are there at the start; later ones get as many.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        size: int,
        address: str = "auto",
        resource: str = RESOURCE,
        hosts: int = 0,
        max_hosts: int = 0,
        silence: float = SILENCE,
        kind: Kind = "docker",
    ) -> None:
        """`hosts` limits how many nodes are used, 0 not at all; `max_hosts` above 0 lets Ray's
        autoscaler know how many are wanted, up to that; `silence` seconds without a word make a
        host count as lost; `kind` is `local` for the fake without isolation, for tests."""
        if size < 1:
            raise SandboxUsageError(f"a pool needs at least one slot, not {size}")
        self.spec = spec
        self._size, self._address = size, address
        self._placement = Placement(capped=True)
        self._homes: dict[str, str] = {}
        """Host of each image that a snapshot left there."""
        self._draining = False
        self._leases, self._wait_seconds, self._failures = 0, 0.0, 0
        self._last_error: str | None = None
        self._returned = anyio.Event()
        self._demand = Demand(resource, max_hosts)
        plan = HostPlan(
            actor=SandboxHost,
            arguments=(kind, silence),
            resource=(resource,),
            limit=hosts,
            open=self._open_host,
            silence=silence,
        )
        self._kept = Hosts(plan, on_up=self._up, on_lost=self._down, tell=self._note)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Raises ClusterError without a cluster or a fit node in it, and what opening a `Pool`
        raises when it fails on every host."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(connected(self._address))
            await stack.enter_async_context(self._kept.kept())
            waiting = self._placement.waiting
            await stack.enter_async_context(
                self._demand.followed(self._placement, lambda: len(waiting))
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._draining = True
        return await self._stack.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def lease(
        self,
        *,
        timeout: float,
        borrower: str = "",
        image: str | None = None,
        snapshot: SandboxSnapshot | None = None,
    ) -> AsyncIterator[Sandbox]:
        """As `Pool.lease`. A host that is lost meanwhile gives SandboxLost to whoever uses the
        sandbox next; while the lease is still waited for, another host is tried."""
        wanted = snapshot.image if snapshot else image or self.spec.image
        with telemetry.lease_wait(wanted, borrower):
            place, talk, sandbox = await self._acquire(timeout, borrower, image, snapshot)
        try:
            with telemetry.lease_held(sandbox.name, wanted, borrower):
                yield sandbox
        finally:
            sandbox.end()
            talk.cancel()
            self._release(place)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts that are up."""
        return tuple(self._kept.lines)

    def expect(self, sources: Sequence[Source]) -> None:
        """Images or snapshots that will be leased next, the soonest first: spread over the hosts,
        whose idle slots warm them."""
        images = [each if isinstance(each, str) else each.image for each in sources]
        by_image = dict(zip(images, sources, strict=True))
        for name, keys in self._placement.expect(images).items():
            if name in self._kept.lines:
                self._kept.lines[name].peer.open("expect", [by_image[key] for key in keys])

    async def drain(self, host: str | None = None) -> None:
        """Give no more leases, of one host by its name or at all, and wait until those given have
        ended. Raises SandboxUsageError for a host that is not there."""
        if host is None:
            self._draining = True
        elif host not in self._placement.places:
            known = ", ".join(self._placement.places) or "none"
            raise SandboxUsageError(f"no host {host}; there are: {known}")
        else:
            self._placement.drain(host)
        while any(self._held(name) for name in ([host] if host else self._kept.lines)):
            await self._returned.wait()

    async def statistics(self) -> PoolStatistics:
        """Of all hosts, asked now; one that does not answer in a second is left out."""
        found: dict[str, PoolStatistics] = {}

        async def ask(name: str, line: Line) -> None:
            with anyio.move_on_after(1.0):
                try:
                    answer: PoolStatistics | None = await line.peer.call("statistics")
                except SandboxLost:
                    return
                if answer is not None:
                    found[name] = answer

        async with anyio.create_task_group() as tasks:
            for name, line in self._kept.lines.items():
                tasks.start_soon(ask, name, line)
        return self._sum(found)

    def _sum(self, found: dict[str, PoolStatistics]) -> PoolStatistics:
        each = found.values()
        return PoolStatistics(
            size=sum(one.size for one in each),
            ready=sum(one.ready for one in each),
            leased=sum(one.leased for one in each),
            making=sum(one.making for one in each),
            broken=sum(one.broken for one in each),
            waiting=len(self._placement.waiting),
            leases=self._leases,
            created=sum(one.created for one in each),
            failures=self._failures + sum(one.failures for one in each),
            wait_seconds=self._wait_seconds,
            last_error=self._last_error,
            hosts=tuple(
                HostStatistics(url=name, ready=one.ready, leased=one.leased, failures=one.failures)
                for name, one in found.items()
            ),
        )

    async def _acquire(
        self,
        timeout: float,
        borrower: str,
        image: str | None,
        snapshot: SandboxSnapshot | None,
    ) -> tuple[Place, Talk, Sandbox]:
        started = anyio.current_time()
        wanted = snapshot.image if snapshot else image or self.spec.image
        only = self._homes.get(wanted)
        while True:
            left = started + timeout - anyio.current_time()
            place = await self._place(wanted, only, left, timeout)
            try:
                talk, sandbox = await self._lease_at(place, left, borrower, image, snapshot)
            except SandboxLost as error:
                self._failures += 1
                self._last_error = str(error)
                self._placement.shun(place)
                self._release(place)
                if anyio.current_time() - started >= timeout:
                    raise
                continue
            except BaseException:
                self._release(place)
                raise
            self._leases += 1
            self._wait_seconds += anyio.current_time() - started
            return place, talk, sandbox

    async def _place(self, key: str, only: str | None, left: float, timeout: float) -> Place:
        if self._draining:
            raise EngineUnavailable("the pool is closed")
        if only is not None and only not in self._placement.places:
            raise SandboxUnavailable(f"{key} was on host {only}, which is gone")
        try:
            with anyio.fail_after(max(left, 0)):
                return await self._placement.acquire(key, only=only)
        except TimeoutError:
            raise LeaseTimeout(f"no sandbox within {timeout:.1f} s: {self._culprit()}") from None

    async def _lease_at(
        self,
        place: Place,
        left: float,
        borrower: str,
        image: str | None,
        snapshot: SandboxSnapshot | None,
    ) -> tuple[Talk, Sandbox]:
        line = self._kept.lines.get(place.name)
        if line is None:
            raise SandboxLost(f"host {place.name} is lost")
        talk = line.peer.open("lease", max(left, 0.0), borrower, image, snapshot)
        try:
            try:
                leased: Leased = await talk.receive()
            except EndOfTalk:
                raise SandboxLost(f"host {place.name} ended the lease at once") from None
        except BaseException:
            with anyio.CancelScope(shield=True):
                talk.cancel()
                await talk.ended(WIND_UP)
            raise
        link = Link(leased.name, TalkStream(talk), leased.early, plain=leased.plain)

        async def commit() -> str:
            tag: str = await line.peer.call("commit", leased.name)
            self._homes[tag] = place.name
            return tag

        return talk, Sandbox(
            leased.name,
            leased.spec,
            link,
            image=leased.image,
            commit=commit,
            base=leased.commit,
        )

    async def _open_host(self, line: Line) -> None:
        await line.peer.call("open", self.spec, self._kept.share(self._size))

    def _up(self, line: Line) -> None:
        self._placement.up(line.name, self._kept.share(self._size))

    def _down(self, line: Line, error: SandboxLost) -> None:
        self._placement.down(line.name)
        self._failures += 1
        self._last_error = str(error)

    def _note(self, words: str) -> None:
        self._last_error = words

    def _held(self, name: str) -> int:
        place = self._placement.places.get(name)
        return place.held if place else 0

    def _release(self, place: Place) -> None:
        self._placement.release(place)
        self._returned.set()
        self._returned = anyio.Event()

    def _culprit(self) -> str:
        places = self._placement.places.values()
        if not places:
            return f"no host is up; last error: {self._last_error}"
        each = ", ".join(f"{p.name} {p.held} of {p.size} leased" for p in places)
        return f"{each}; {len(self._placement.waiting)} more wait"
