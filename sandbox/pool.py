"""A pool of sandboxes: warm slots, one disposable container per lease, refilled in the background.

        start()              prepared()            request()
    ┌────────► making ───────────────────► ready ──────────────► leased
    │            │ ▲                         ▲                      │
    │   failed() │ │ (after a pause)         └── withdraw()         │ returned()
    │            ▼ │                                                │
    │          broken                                               │
    └───────────────────────────────────────────────────────────────┘

`Core` decides, synchronously and without I/O, and returns the work to do; `Pool` does it. A waiter
is woken by prepared() (a slot for it), by failed() (an error that no waiting mends), or by its own
deadline. A slot owns a parked container that holds a network namespace, because making those is the
dearest part of a container; each lease gets a new container in it, and returning a lease destroys
that container and makes the next one, both in the background.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

import anyio
import anyio.abc

from .container import Sandbox, start_holder, start_sandbox
from .engine import Engine
from .errors import EngineUnavailable, ImageError, LeaseTimeout, SandboxError
from .reaper import current_owner, sweep
from .spec import SandboxSpec

FIRST_PAUSE = 0.2  # seconds before a slot that failed tries again; doubles each time
LONGEST_PAUSE = 10.0
HOPELESS = 4  # failures in a row of every slot after which waiting is pointless
REMOVAL_LIMIT = 15.0  # seconds for a container to go by itself before it is removed by force
EXIT_LIMIT = 60.0  # seconds for the pool's exit to see every container gone


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """A snapshot of a pool."""

    size: int
    """Slots."""
    ready: int
    """Slots with a sandbox that waits for a lease."""
    leased: int
    """Slots whose sandbox is leased."""
    making: int
    """Slots whose next sandbox is being made."""
    broken: int
    """Slots that failed and pause before they try again."""
    waiting: int
    """Callers that wait for a lease."""
    leases: int
    """Leases given since the start."""
    created: int
    """Sandboxes made since the start."""
    failures: int
    """Sandboxes that could not be made since the start."""
    wait_seconds: float
    """Sum of the time that callers waited for the leases they got."""
    last_error: str | None
    """The last failure, if any."""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one sandbox at a time."""

    index: int
    state: Literal["making", "ready", "leased", "broken"] = "making"
    since: float = 0.0
    """When it came into this state, on anyio's clock."""
    sandbox: Sandbox | None = None
    holder: tuple[str, anyio.abc.SocketStream] | None = None
    borrower: str = ""
    failures: int = 0
    """In a row."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller in the queue; `woken` is set with either a slot or an error in place."""

    since: float
    borrower: str
    woken: anyio.Event = field(default_factory=anyio.Event)
    slot: Slot | None = None
    error: SandboxError | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Work: make the slot's next sandbox, after a pause (seconds)."""

    slot: Slot
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Retire:
    """Work: destroy a sandbox."""

    sandbox: Sandbox


Work = Prepare | Retire


class Core:
    """The pool's decisions. Every method is atomic and returns the I/O that follows from it."""

    def __init__(self, size: int) -> None:
        self.slots = [Slot(index) for index in range(size)]
        self.waiters: deque[Waiter] = deque()
        self.leases = self.created = self.failures = 0
        self.wait_seconds = 0.0
        self.last_error: SandboxError | None = None

    def start(self, now: float) -> Sequence[Work]:
        """Fill every slot."""
        for slot in self.slots:
            slot.since = now
        return [Prepare(slot) for slot in self.slots]

    def request(self, waiter: Waiter, now: float) -> None:
        """Queue a caller; first come, first served."""
        self.waiters.append(waiter)
        self._serve(now)

    def withdraw(self, waiter: Waiter, now: float) -> None:
        """The caller gave up; a slot that it had just got, untouched, goes to the next."""
        if waiter.slot is None:
            if waiter in self.waiters:
                self.waiters.remove(waiter)
            return
        self._enter(waiter.slot, "ready", now)
        self.leases -= 1
        self._serve(now)

    def prepared(self, slot: Slot, sandbox: Sandbox, now: float) -> None:
        """A slot's sandbox is up."""
        slot.sandbox, slot.failures = sandbox, 0
        self.created += 1
        self._enter(slot, "ready", now)
        self._serve(now)

    def failed(self, slot: Slot, error: SandboxError, now: float) -> Sequence[Work]:
        """A slot's sandbox could not be made: try again later, and wake whom waiting won't help."""
        slot.failures += 1
        self.failures += 1
        self.last_error = error
        self._enter(slot, "broken", now)
        hopeless = all(each.failures >= HOPELESS for each in self.slots)
        if hopeless or isinstance(error, ImageError):
            while self.waiters:
                waiter = self.waiters.popleft()
                waiter.error = error
                waiter.woken.set()
        pause = min(FIRST_PAUSE * 2 ** (slot.failures - 1), LONGEST_PAUSE)
        return [Prepare(slot, pause)]

    def retrying(self, slot: Slot, now: float) -> None:
        """A broken slot's pause is over."""
        self._enter(slot, "making", now)

    def returned(self, slot: Slot, now: float) -> Sequence[Work]:
        """A lease ended, however it ended."""
        sandbox, slot.sandbox = slot.sandbox, None
        self._enter(slot, "making", now)
        return [*([Retire(sandbox)] if sandbox else []), Prepare(slot)]

    def culprit(self, now: float) -> str:
        """Why nobody could be served, for a person."""
        count = self._count()
        parts = [f"{number} {state}" for state, number in count.items() if number]
        leased = [slot for slot in self.slots if slot.state == "leased"]
        if leased:
            oldest = min(leased, key=lambda slot: slot.since)
            who = f" by {oldest.borrower}" if oldest.borrower else ""
            parts.append(f"longest lease {now - oldest.since:.1f} s{who}")
        if count["broken"] and self.last_error is not None:
            parts.append(f"last error: {self.last_error}")
        return f"of {len(self.slots)} slots " + ", ".join(parts)

    def statistics(self) -> PoolStatistics:
        """A snapshot."""
        count = self._count()
        return PoolStatistics(
            size=len(self.slots),
            ready=count["ready"],
            leased=count["leased"],
            making=count["making"],
            broken=count["broken"],
            waiting=len(self.waiters),
            leases=self.leases,
            created=self.created,
            failures=self.failures,
            wait_seconds=self.wait_seconds,
            last_error=str(self.last_error) if self.last_error else None,
        )

    def _count(self) -> dict[str, int]:
        count: dict[str, int] = {"leased": 0, "ready": 0, "making": 0, "broken": 0}
        for slot in self.slots:
            count[slot.state] += 1
        return count

    def _enter(
        self, slot: Slot, state: Literal["making", "ready", "leased", "broken"], now: float
    ) -> None:
        slot.state, slot.since = state, now

    def _serve(self, now: float) -> None:
        ready = [slot for slot in self.slots if slot.state == "ready"]
        ready.sort(key=lambda slot: slot.since)
        for slot in ready:
            if not self.waiters:
                return
            waiter = self.waiters.popleft()
            self._enter(slot, "leased", now)
            slot.borrower = waiter.borrower
            self.leases += 1
            self.wait_seconds += now - waiter.since
            waiter.slot = slot
            waiter.woken.set()


class Pool:
    """Sandboxes of one spec, for one event loop. An async context manager.

    On entry it removes what dead owners left, checks that the image is there, and begins to warm
    its slots; on exit, however it comes about, every container of it is gone.
    """

    def __init__(self, spec: SandboxSpec, *, size: int, engine: Engine | None = None) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one slot, not {size}")
        self.spec = spec
        self.engine = engine or Engine()
        self._owns_engine = engine is None
        self._core = Core(size)
        self._id = f"{os.getpid()}-{secrets.token_hex(3)}"
        self._serial = 0
        self._names: set[str] = set()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        """Raises EngineUnavailable without a daemon, ImageError without the image."""
        try:
            await sweep(self.engine)
            if await self.engine.image_id(self.spec.image) is None:
                raise ImageError(
                    f"no local image {self.spec.image}: build or pull it first, "
                    "or call ensure_base()"
                )
        except BaseException:
            self._close_engine()
            raise
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
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
            self._close_engine()

    @asynccontextmanager
    async def lease(self, *, timeout: float, borrower: str = "") -> AsyncIterator[Sandbox]:
        """A fresh sandbox for the length of the block; nothing in it survives the block.

        `timeout` (seconds) limits the wait; `borrower` names the lease in other callers' errors.
        Raises LeaseTimeout, and ImageError or another SandboxError when no waiting would help.
        """
        slot = await self._acquire(timeout, borrower)
        try:
            assert slot.sandbox is not None
            yield slot.sandbox
        finally:
            self._perform(self._core.returned(slot, anyio.current_time()))

    def statistics(self) -> PoolStatistics:
        """A snapshot."""
        return self._core.statistics()

    async def _acquire(self, timeout: float, borrower: str) -> Slot:
        deadline = anyio.current_time() + timeout
        while True:
            if self._tasks is None:
                raise EngineUnavailable("the pool is closed")
            waiter = Waiter(anyio.current_time(), borrower)
            self._core.request(waiter, anyio.current_time())
            try:
                with anyio.fail_after(deadline - anyio.current_time()):
                    await waiter.woken.wait()
            except TimeoutError:
                culprit = self._core.culprit(anyio.current_time())
                self._core.withdraw(waiter, anyio.current_time())
                raise LeaseTimeout(f"no sandbox within {timeout:.1f} s: {culprit}") from None
            except BaseException:
                self._core.withdraw(waiter, anyio.current_time())
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
                self._tasks.start_soon(self._retire, item.sandbox)

    async def _prepare(self, slot: Slot, pause: float) -> None:
        if pause:
            await anyio.sleep(pause)
            self._core.retrying(slot, anyio.current_time())
        name = self._name(slot, "run")
        try:
            if slot.holder is None:
                slot.holder = await self._hold(slot)
            sandbox = await start_sandbox(
                self.engine,
                name,
                self.spec,
                network=f"container:{slot.holder[0]}",
                labels=self._labels(slot, name),
            )
        except SandboxError as error:
            self._perform(self._core.failed(slot, error, anyio.current_time()))
            await self._forget(slot, name)
        else:
            self._core.prepared(slot, sandbox, anyio.current_time())

    async def _hold(self, slot: Slot) -> tuple[str, anyio.abc.SocketStream]:
        name = self._name(slot, "net")
        labels = self._labels(slot, name)
        return name, await start_holder(self.engine, name, self.spec, labels=labels)

    async def _forget(self, slot: Slot, name: str) -> None:
        """Drop a container that failed, and its slot's holder, which may be why it failed."""
        holder, slot.holder = slot.holder, None
        names = [name]
        if holder is not None:
            await anyio.aclose_forcefully(holder[1])
            names.append(holder[0])
        try:
            for each in names:
                await self.engine.remove(each)
                self._names.discard(each)
        except SandboxError as error:  # the exit and the next start's sweep try again
            self._core.last_error = error

    async def _retire(self, sandbox: Sandbox) -> None:
        await sandbox.aclose()
        await self._see_gone(sandbox.name, REMOVAL_LIMIT)

    async def _see_gone(self, name: str, within: float) -> None:
        try:
            if not await self.engine.gone(name, within=within):
                await self.engine.remove(name)
            self._names.discard(name)
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
                for name in tuple(self._names):
                    tasks.start_soon(self._end, name)

    async def _end(self, name: str) -> None:
        """Remove by force what never started; the rest goes by itself, or is made to."""
        try:
            found = await self.engine.inspect(name)
            if found is None:
                self._names.discard(name)
                return
            if not found["State"]["Running"]:
                await self.engine.remove(name)
        except SandboxError as error:
            self._core.last_error = error
        await self._see_gone(name, 5.0)

    def _name(self, slot: Slot, role: str) -> str:
        """A container's name, on record before the container is."""
        self._serial += 1
        name = f"patchgym-{self._id}-{slot.index}-{role}{self._serial}"
        self._names.add(name)
        return name

    def _labels(self, slot: Slot, name: str) -> dict[str, str]:
        owner = current_owner().labels()
        return owner | {"patchgym.slot": str(slot.index), "patchgym.lease": name}

    def _close_engine(self) -> None:
        if self._owns_engine:
            self.engine.close()
