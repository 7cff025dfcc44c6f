"""The pool's decisions, without any I/O.

        start()              prepared()            request()
    ┌────────► making ───────────────────► ready ──────────────► leased
    │            │ ▲                         │ ▲                    │
    │   failed() │ │ retrying()              │ └── withdraw()       │ returned()
    │            ▼ │                         │                      │
    │          broken                        │ request(), expect()  │
    └────────────────────────────────────────┴──────────────────────┘

Every method is atomic and returns the work that follows from it. A waiter is woken by prepared() (a
slot for it), by failed() (an error that no waiting mends), or by its own deadline. A slot stays on
one host; what it holds (its source: an image or a snapshot) follows what is asked for.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio
import anyio.abc

from .container import Sandbox, SandboxSnapshot
from .errors import EngineUnavailable, ImageError, PatchgymError, SandboxError

FIRST_PAUSE = 0.2  # seconds before a slot that failed tries again; doubles each time
LONGEST_PAUSE = 10.0
HOPELESS = 4  # failures in a row of every slot after which waiting is pointless
BREAK_AFTER = 3  # failures in a row of a host after which one slot at a time tries it

Source = str | SandboxSnapshot
"""What a sandbox starts from: an image's name, or a snapshot."""
State = Literal["making", "ready", "leased", "broken"]


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
    hosts: tuple[HostStatistics, ...]
    """Each Docker host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStatistics:
    """One Docker host of a pool."""

    url: str
    ready: int
    leased: int
    failures: int
    """In a row; from three on the host is tried by one slot at a time."""


@dataclass(slots=True, eq=False)
class Slot:
    """A place for one sandbox at a time."""

    index: int
    host: int
    source: Source
    state: State = "making"
    since: float = 0.0
    """When it came into this state, on anyio's clock."""
    sandbox: Sandbox | None = None
    holder: tuple[str, anyio.abc.ByteStream] | None = None
    borrower: str = ""
    failures: int = 0
    """In a row."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller in the queue; `woken` is set with either a slot or an error in place."""

    since: float
    borrower: str
    source: Source
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
    """Work: destroy a sandbox of a host."""

    sandbox: Sandbox
    host: int


Work = Prepare | Retire


class Core:
    """Slots, and who gets which."""

    def __init__(self, size: int, source: Source, hosts: int = 1) -> None:
        self.slots = [Slot(index, index % hosts, source) for index in range(size)]
        self._usual = source
        self.waiters: deque[Waiter] = deque()
        self.leases = self.created = self.failures = 0
        self.wait_seconds = 0.0
        self.last_error: SandboxError | None = None
        self.host_failures = [0] * hosts
        self._expected: tuple[Source, ...] = ()
        self._absent: set[tuple[int, Source]] = set()

    def start(self, now: float) -> Sequence[Work]:
        """Fill every slot."""
        for slot in self.slots:
            slot.since = now
        return [Prepare(slot) for slot in self.slots]

    def request(self, waiter: Waiter, now: float) -> Sequence[Work]:
        """Queue a caller; for one source, first come, first served."""
        if len(self._hosts_without(waiter.source)) == len(self.host_failures):
            # it may have been built since
            self._absent = {each for each in self._absent if each[1] != waiter.source}
        self.waiters.append(waiter)
        self._serve(now)
        return self._convert(now)

    def expect(self, sources: Sequence[Source], now: float) -> Sequence[Work]:
        """What will be asked for next, the soonest first; makes idle slots hold it in advance."""
        self._expected = tuple(sources)
        return self._convert(now)

    def withdraw(self, waiter: Waiter, now: float) -> Sequence[Work]:
        """The caller gave up; a slot that it had just got, untouched, goes to the next."""
        if waiter.slot is None:
            if waiter in self.waiters:
                self.waiters.remove(waiter)
            return []
        self._enter(waiter.slot, "ready", now)
        self.leases -= 1
        self._serve(now)
        return self._convert(now)

    def prepared(self, slot: Slot, sandbox: Sandbox, now: float) -> Sequence[Work]:
        """A slot's sandbox is up."""
        slot.sandbox, slot.failures = sandbox, 0
        self.host_failures[slot.host] = 0
        self.created += 1
        self._enter(slot, "ready", now)
        self._serve(now)
        return self._convert(now)

    def failed(self, slot: Slot, error: SandboxError, now: float) -> Sequence[Work]:
        """A slot's sandbox could not be made: try again later, and tell those it matters to."""
        slot.failures += 1
        self.failures += 1
        self.last_error = error
        self._enter(slot, "broken", now)
        if isinstance(error, ImageError):
            self._absent.add((slot.host, slot.source))
            if len(self._hosts_without(slot.source)) == len(self.host_failures):
                self._refuse(slot.source, error)
        else:
            self.host_failures[slot.host] += 1
        if all(each.failures >= HOPELESS for each in self.slots):
            self._refuse(None, error)
        return [Prepare(slot, self._pause(slot))]

    def retrying(self, slot: Slot, now: float) -> Sequence[Work] | None:
        """A broken slot's pause is over: None to go ahead, or the work to do instead."""
        trials = [s for s in self.slots if s.host == slot.host and s.state == "making"]
        if self.host_failures[slot.host] >= BREAK_AFTER and trials:
            return [Prepare(slot, self._pause(slot))]
        slot.source = self._next_source(slot)
        self._enter(slot, "making", now)
        return None

    def returned(self, slot: Slot, now: float) -> Sequence[Work]:
        """A lease ended, however it ended."""
        sandbox, slot.sandbox = slot.sandbox, None
        slot.source = self._next_source(slot)
        self._enter(slot, "making", now)
        return [*([Retire(sandbox, slot.host)] if sandbox else []), Prepare(slot)]

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

    def statistics(self, urls: Sequence[str]) -> PoolStatistics:
        """A snapshot; `urls` names the hosts."""
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
            hosts=tuple(
                HostStatistics(
                    url=url,
                    ready=self._on_host(index, "ready"),
                    leased=self._on_host(index, "leased"),
                    failures=self.host_failures[index],
                )
                for index, url in enumerate(urls)
            ),
        )

    def _count(self) -> dict[State, int]:
        count: dict[State, int] = {"leased": 0, "ready": 0, "making": 0, "broken": 0}
        for slot in self.slots:
            count[slot.state] += 1
        return count

    def _on_host(self, host: int, state: State) -> int:
        return sum(slot.host == host and slot.state == state for slot in self.slots)

    def _enter(self, slot: Slot, state: State, now: float) -> None:
        slot.state, slot.since = state, now

    def _pause(self, slot: Slot) -> float:
        failures = max(slot.failures, self.host_failures[slot.host])
        return float(min(FIRST_PAUSE * 2 ** (failures - 1), LONGEST_PAUSE))

    def _hosts_without(self, source: Source) -> set[int]:
        return {host for host, absent in self._absent if absent == source}

    def _refuse(self, source: Source | None, error: SandboxError) -> None:
        """Wake the waiters for a source (None: all) with an error."""
        refused = [each for each in self.waiters if source in (None, each.source)]
        self.waiters = deque(each for each in self.waiters if each not in refused)
        for waiter in refused:
            waiter.error = error
            waiter.woken.set()

    def _serve(self, now: float) -> None:
        """Give ready slots to those who wait: of equals, from the host with the fewest leases."""
        for waiter in tuple(self.waiters):
            fit = [s for s in self.slots if s.state == "ready" and s.source == waiter.source]
            if not fit:
                continue
            slot = min(fit, key=lambda s: (self._on_host(s.host, "leased"), s.since))
            self.waiters.remove(waiter)
            self._enter(slot, "leased", now)
            slot.borrower = waiter.borrower
            self.leases += 1
            self.wait_seconds += now - waiter.since
            waiter.slot = slot
            waiter.woken.set()

    def _unmet(self, host: int | None) -> Iterator[Source]:
        """What is asked for or expected and neither held nor in the making, in order."""
        supply = Counter(s.source for s in self.slots if s.state in ("making", "ready"))
        for source in (*(waiter.source for waiter in self.waiters), *self._expected):
            if supply[source]:
                supply[source] -= 1
            elif host is None or (host, source) not in self._absent:
                yield source

    def _next_source(self, slot: Slot) -> Source:
        there = (slot.host, slot.source) not in self._absent
        return next(self._unmet(slot.host), slot.source if there else self._usual)

    def _convert(self, now: float) -> Sequence[Work]:
        """Let ready slots hold what is waited for, and those nobody wants what is expected."""
        work: list[Work] = []
        waited = Counter(waiter.source for waiter in self.waiters)
        wanted = waited + Counter(self._expected)
        for source in tuple(self._unmet(None)):
            held = Counter(s.source for s in self.slots if s.state == "ready")
            ready = [
                slot
                for slot in self.slots
                if slot.state == "ready" and (slot.host, source) not in self._absent
            ]
            spare = [slot for slot in ready if held[slot.source] > wanted[slot.source]]
            if not spare and waited[source]:
                spare = ready  # one who waits comes before one who is expected
            if not spare:
                continue
            waited[source] -= 1
            slot = min(spare, key=lambda s: s.since)
            sandbox, slot.sandbox = slot.sandbox, None
            slot.source = source
            self._enter(slot, "making", now)
            work += [*([Retire(sandbox, slot.host)] if sandbox else []), Prepare(slot)]
        return work


def worst(errors: Sequence[PatchgymError]) -> PatchgymError:
    """The error to tell when every host failed: a daemon that is not there comes first."""
    return next((e for e in errors if isinstance(e, EngineUnavailable)), errors[0])
