"""A pool of sandboxes: warm slots, one disposable container per lease, refilled in the background.

`Core` (pool_core.py) decides, `Pool` does. A slot owns a parked container that holds a network
namespace, because making those is the dearest part of a container; each lease gets a new container
in it, and returning a lease destroys that container and makes the next one, both in the background.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
import anyio.abc

from . import telemetry
from .container import Sandbox, SandboxSnapshot
from .engine import Engine
from .errors import (
    EngineUnavailable,
    LeaseTimeout,
    NameTaken,
    PatchgymError,
    SandboxError,
    SandboxUnavailable,
    SandboxUsageError,
)
from .launch import start_holder, start_sandbox
from .pool_core import Core, PoolStatistics, Prepare, Slot, Source, Waiter, Work, worst
from .proxy import Proxy
from .reaper import current_owner, sweep
from .spec import PROXY_PORT, SandboxSpec
from .supervised import Supervised, supervise

REMOVAL_LIMIT = 15.0  # seconds for a container to go by itself before it is removed by force
EXIT_LIMIT = 60.0  # seconds for the pool's exit to see every container gone


class Pool:
    """Sandboxes of one spec, for one event loop. An async context manager.

    On entry it removes what dead owners left, checks that the image is there, and begins to warm
    its slots; on exit, however it comes about, every container of it is gone.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        *,
        size: int,
        engine: Engine | None = None,
        hosts: Sequence[str | Engine] = (),
    ) -> None:
        """`size` slots, spread evenly over the Docker `hosts` (see `Endpoint` for their addresses);
        without any, all on `engine`, or on this machine's daemon."""
        if size < 1:
            raise SandboxUsageError(f"a pool needs at least one slot, not {size}")
        if engine is not None and hosts:
            raise SandboxUsageError("give either an engine or hosts")
        self.spec = spec
        given = list(hosts) or [engine or Engine()]
        self.engines = tuple(Engine(each) if isinstance(each, str) else each for each in given)
        self._owned = [e for e in self.engines if e is not engine and e not in hosts]
        self._core = Core(size, spec.image, len(self.engines))
        self._id = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._serial = 0
        self._names: dict[str, Engine] = {}
        self._supervised: dict[tuple[int, str], Supervised] = {}
        self._supervising = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._draining = False
        self._returned = anyio.Event()

    async def __aenter__(self) -> Self:
        """Raises EngineUnavailable without a daemon, ImageError without the image."""
        try:
            errors = [error for error in await self._visit_hosts() if error is not None]
            if len(errors) == len(self.engines):
                raise worst(errors)
        except BaseException:
            self._close_engines()
            raise
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        telemetry.watch(self)
        self._perform(self._core.start(anyio.current_time()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        assert tasks is not None
        telemetry.forget(self)
        if error is None:
            tasks.cancel_scope.cancel()
        try:
            return await tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if [*group.exceptions] != [error]:
                raise
            return False  # the caller's own exception, which needs no wrapping
        finally:
            await self._remove_all()
            self._close_engines()

    @asynccontextmanager
    async def lease(
        self,
        *,
        timeout: float,
        borrower: str = "",
        image: str | None = None,
        snapshot: SandboxSnapshot | None = None,
    ) -> AsyncIterator[Sandbox]:
        """A fresh sandbox for the length of the block; nothing in it survives the block.

        `timeout` (seconds) limits the wait, 0 takes one that is ready or fails; `borrower` names
        the lease in other callers' errors. Starts from `image` or `snapshot` instead of the spec's
        image when given. Raises LeaseTimeout, and ImageError or another SandboxError when no
        waiting would help.
        """
        source = snapshot or image or self.spec.image
        wanted = _image_of(source)
        with telemetry.lease_wait(wanted, borrower):
            slot = await self._acquire(timeout, borrower, source)
        sandbox = slot.sandbox
        assert sandbox is not None
        try:
            with telemetry.lease_held(sandbox.name, wanted, borrower):
                yield sandbox
        finally:
            sandbox.end()
            self._perform(self._core.returned(slot, anyio.current_time()))
            self._returned.set()
            self._returned = anyio.Event()

    def expect(self, sources: Sequence[Source]) -> None:
        """Images or snapshots that will be leased next, the soonest first: idle slots warm them."""
        self._perform(self._core.expect(sources, anyio.current_time()))

    async def drain(self) -> None:
        """Give no more leases, and wait until those given have ended."""
        self._draining = True
        while self._core.statistics(()).leased:
            await self._returned.wait()

    def statistics(self) -> PoolStatistics:
        """A snapshot."""
        return self._core.statistics([engine.url for engine in self.engines])

    async def _visit_hosts(self) -> list[PatchgymError | None]:
        """Sweep every host and look for the image; what went wrong on each."""
        problems: list[PatchgymError | None] = [None] * len(self.engines)

        async def visit(host: int) -> None:
            try:
                await sweep(self.engines[host])
                supervised = await self._supervise(host, self.spec.image)
                if isinstance(self.spec.network, tuple):
                    supervised.relay(PROXY_PORT)  # or say now that there is none
            except PatchgymError as error:
                problems[host] = error

        async with anyio.create_task_group() as tasks:
            for host in range(len(self.engines)):
                tasks.start_soon(visit, host)
        return problems

    async def _supervise(self, host: int, image: str) -> Supervised:
        async with self._supervising:
            if (host, image) not in self._supervised:
                made = await supervise(self.engines[host], self.spec, image)
                self._supervised[host, image] = made
            return self._supervised[host, image]

    async def _acquire(self, timeout: float, borrower: str, source: Source) -> Slot:
        deadline = anyio.current_time() + timeout
        while True:
            if self._tasks is None or self._draining:
                raise EngineUnavailable("the pool is closed")
            waiter = Waiter(anyio.current_time(), borrower, source)
            self._perform(self._core.request(waiter, anyio.current_time()))
            try:
                if not waiter.woken.is_set():
                    with anyio.fail_after(max(deadline - anyio.current_time(), 0)):
                        await waiter.woken.wait()
            except TimeoutError:
                culprit = self._core.culprit(anyio.current_time())
                self._perform(self._core.withdraw(waiter, anyio.current_time()))
                raise LeaseTimeout(f"no sandbox within {timeout:.1f} s: {culprit}") from None
            except BaseException:
                self._perform(self._core.withdraw(waiter, anyio.current_time()))
                raise
            if waiter.error is not None:
                raise waiter.error
            assert waiter.slot is not None and waiter.slot.sandbox is not None
            if waiter.slot.sandbox.is_connected():
                return waiter.slot
            # it died while it waited (a restarted daemon, say): take the next
            self._perform(self._core.returned(waiter.slot, anyio.current_time()))

    def _perform(self, work: Sequence[Work]) -> None:
        if self._tasks is None:
            return  # closing: _remove_all takes every container
        for item in work:
            if isinstance(item, Prepare):
                self._tasks.start_soon(self._prepare, item.slot, item.pause)
            else:
                self._tasks.start_soon(self._retire, item.sandbox, self.engines[item.host])

    async def _prepare(self, slot: Slot, pause: float) -> None:
        if pause:
            await anyio.sleep(pause)
            instead = self._core.retrying(slot, anyio.current_time())
            if instead is not None:
                self._perform(instead)
                return
        name = self._name(slot, "run")
        try:
            with telemetry.prepare(slot.index, _image_of(slot.source)):
                sandbox = await self._make(slot, name)
        except NameTaken as error:
            self._names.pop(error.name, None)
            self._perform(self._core.failed(slot, error, anyio.current_time()))
        except SandboxError as error:
            self._perform(self._core.failed(slot, error, anyio.current_time()))
            await self._forget(slot, name)
        else:
            self._perform(self._core.prepared(slot, sandbox, anyio.current_time()))

    async def _make(self, slot: Slot, name: str) -> Sandbox:
        source = slot.source
        image = _image_of(source)
        try:
            supervised = await self._supervise(slot.host, image)
            if slot.holder is None:
                slot.holder = await self._hold(slot, supervised)
            sandbox = await start_sandbox(
                self.engines[slot.host],
                name,
                self.spec,
                image=image,
                supervised=supervised,
                network=f"container:{slot.holder[0]}",
                labels=self._labels(slot, name),
            )
        except SandboxError:
            self._supervised.pop((slot.host, image), None)  # the image may have been removed
            raise
        if isinstance(source, SandboxSnapshot):
            try:
                await sandbox.restore(source)
            except BaseException as problem:
                await sandbox.aclose()
                if isinstance(problem, SandboxUsageError):  # nobody asked for anything yet
                    raise SandboxUnavailable(f"can't restore: {problem}") from problem
                raise
        return sandbox

    async def _hold(self, slot: Slot, supervised: Supervised) -> tuple[str, anyio.abc.ByteStream]:
        name = self._name(slot, "net")
        stream, early = await start_holder(
            self.engines[slot.host],
            name,
            self.spec,
            supervised=supervised,
            labels=self._labels(slot, name),
        )
        if isinstance(self.spec.network, tuple) and self._tasks is not None:
            self._tasks.start_soon(Proxy(stream, early, self.spec.network).serve)
        return name, stream

    async def _forget(self, slot: Slot, name: str) -> None:
        """Drop a container that failed, and its slot's holder, which may be why it failed."""
        holder, slot.holder = slot.holder, None
        names = [name]
        if holder is not None:
            await anyio.aclose_forcefully(holder[1])
            names.append(holder[0])
        try:
            for each in names:
                await self.engines[slot.host].remove(each)
                self._names.pop(each, None)
        except SandboxError as error:  # the exit and the next start's sweep try again
            self._core.last_error = error

    async def _retire(self, sandbox: Sandbox, engine: Engine) -> None:
        await sandbox.aclose()
        await self._see_gone(sandbox.name, engine, REMOVAL_LIMIT)

    async def _see_gone(self, name: str, engine: Engine, within: float) -> None:
        try:
            if not await engine.gone(name, within=within):
                await engine.remove(name)
            self._names.pop(name, None)
        except SandboxError as error:  # as above: the name is kept
            self._core.last_error = error

    async def _remove_all(self) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(EXIT_LIMIT):
            for slot in self._core.slots:
                if slot.sandbox is not None:
                    await slot.sandbox.aclose()
                if slot.holder is not None:
                    await anyio.aclose_forcefully(slot.holder[1])
            async with anyio.create_task_group() as tasks:
                for name, engine in tuple(self._names.items()):
                    tasks.start_soon(self._end, name, engine)

    async def _end(self, name: str, engine: Engine) -> None:
        """Remove by force what never started; the rest goes by itself, or is made to."""
        try:
            found = await engine.inspect(name)
            if found is None:
                self._names.pop(name, None)
                return
            if not found["State"]["Running"]:
                await engine.remove(name)
        except SandboxError as error:
            self._core.last_error = error
        await self._see_gone(name, engine, 5.0)

    def _name(self, slot: Slot, role: str) -> str:
        """A container's name, on record before the container is."""
        self._serial += 1
        name = f"patchgym-{self._id}-{slot.index}-{role}{self._serial}"
        self._names[name] = self.engines[slot.host]
        return name

    def _labels(self, slot: Slot, name: str) -> dict[str, str]:
        owner = current_owner().labels()
        return owner | {"patchgym.slot": str(slot.index), "patchgym.lease": name}

    def _close_engines(self) -> None:
        for engine in self._owned:
            engine.close()


def _image_of(source: Source) -> str:
    return source if isinstance(source, str) else source.image
