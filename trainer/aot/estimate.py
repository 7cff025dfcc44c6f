"""Seconds that a compiled program is expected to take, from its text alone: never a measured speed.

A device's instructions are walked in their order, with a clock:

    the compiler's estimate of a fusion         its cycles / the chip's clock
    a Pallas kernel                             what the caller says, by the kernel's name
    a loop                                      its body, as often as it runs
    an exchange that all wait for               its bytes / the link
    an exchange that is carried along           the link works beside; `done` waits for the rest
    a copy to or from the host's memory         likewise, at the host's rate

One link does one exchange after the other. Left out: the time to launch, memory that is busy with
copies, devices that wait for each other, and rows with less to do than a full causal one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .chips import Chip
from .exchange import awaited, collective_of, host_copy
from .hlo import Instruction, Module
from .trips import trip_count


@dataclass(slots=True)
class Traffic:
    """Exchanges of one kind."""

    count: int = 0
    """Times that it runs."""
    bytes: int = 0
    """Sent by each device."""


@dataclass(slots=True)
class Estimate:
    """Of one run of a program."""

    seconds: float = 0.0
    """All of it."""
    compute: float = 0.0
    """Of these, the compiler's cycles."""
    kernels: float = 0.0
    """Of these, Pallas kernels."""
    waiting: float = 0.0
    """Of these, exchanges that nothing hides, and copies to and from the host."""
    traffic: dict[str, Traffic] = field(default_factory=dict)
    """By kind, every exchange, hidden or not."""
    parts: list[tuple[float, str]] = field(default_factory=list)
    """Seconds of single instructions, and which they are."""

    def add(self, other: Estimate, times: int, label: str = "") -> None:
        """Add `other`, run `times` over."""
        self.seconds += times * other.seconds
        self.compute += times * other.compute
        self.kernels += times * other.kernels
        self.waiting += times * other.waiting
        for kind, theirs in other.traffic.items():
            ours = self.traffic.setdefault(kind, Traffic())
            ours.count += times * theirs.count
            ours.bytes += times * theirs.bytes
        self.parts += [(times * seconds, label + name) for seconds, name in other.parts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What the text of a program doesn't tell."""

    chip: Chip
    """The device."""
    kernels: Mapping[str, float]
    """Seconds of one call of each Pallas kernel, by its name."""
    trips: int
    """How often a loop runs whose limit is computed while the program runs."""


def estimate(module: Module, given: Assumptions) -> Estimate:
    """The whole of `module`. Raises ValueError for a Pallas kernel that `given` doesn't name."""
    return _Walk(module, given).computation(module.entry)


class _Walk:
    """Walks the computations of one module."""

    def __init__(self, module: Module, given: Assumptions) -> None:
        self._module = module
        self._given = given
        self._known: dict[str, Estimate] = {}

    def computation(self, name: str) -> Estimate:
        """One run of the computation `name`."""
        if name not in self._known:
            self._known[name] = self._timed(self._module.called(name))
        return self._known[name]

    def _timed(self, lines: tuple[Instruction, ...]) -> Estimate:
        total, link, host = Estimate(), _Link(), _Link()
        for one in lines:
            self._instruction(total, one, lines)
            self._exchange(total, one, link, host)
        _wait(total, max(each.rest(total.seconds) for each in (link, host)), "what was started")
        return total

    def _instruction(
        self, total: Estimate, one: Instruction, lines: tuple[Instruction, ...]
    ) -> None:
        """Add what `one` computes."""
        if one.opcode == "while":
            trips = trip_count(self._module, one, lines)
            body = self.computation(one.attribute("body"))
            times = self._given.trips if trips is None else trips
            total.add(body, times, f"{times} x ")
        elif one.opcode == "conditional":
            branches = one.names("branch_computations") or [
                one.attribute(f"{key}_computation") for key in ("true", "false")
            ]
            dearest = max(map(self.computation, branches), key=lambda branch: branch.seconds)
            total.add(dearest, 1)
        elif one.opcode in ("call", "async-start"):
            total.add(self.computation(one.attribute("to_apply") or one.attribute("calls")), 1)
        elif one.opcode == "custom-call" and "tpu_custom_call" in one.attributes:
            _work(total, self._kernel(one), one, kernel=True)
        elif one.cycles:
            _work(total, one.cycles / self._given.chip.clock, one)

    def _kernel(self, one: Instruction) -> float:
        for name, seconds in self._given.kernels.items():
            if name in one.origin or one.name.startswith(name):
                return seconds
        raise ValueError(
            f"the program has a Pallas kernel of unknown cost: {one.name} {one.origin}"
        )

    def _exchange(self, total: Estimate, one: Instruction, link: _Link, host: _Link) -> None:
        """Start or await what `one` exchanges with other chips, or with the host."""
        if key := awaited(self._module, one):
            for each in (link, host):
                _wait(total, each.wait(key, total.seconds), one.name)
            return
        if size := host_copy(one):
            host.start(one.name, total.seconds, size / self._given.chip.host)
            return
        found = collective_of(self._module, one)
        if found is None or (found.key and link.carries(found.key)):
            return
        traffic = total.traffic.setdefault(found.kind, Traffic())
        traffic.count += 1
        traffic.bytes += found.bytes
        link.start(found.key or one.name, total.seconds, found.bytes / self._given.chip.link)
        if not found.key:
            _wait(total, link.wait(one.name, total.seconds), f"{one.name} {one.origin[-60:]}")


class _Link:
    """What a device's link, to other chips or to the host, still has to do."""

    def __init__(self) -> None:
        self._free = 0.0
        self._ends: dict[str, float] = {}

    def carries(self, key: str) -> bool:
        """Whether the exchange `key` is under way."""
        return key in self._ends

    def start(self, key: str, now: float, seconds: float) -> None:
        """Send after all that was started before."""
        self._free = max(self._free, now) + seconds
        self._ends[key] = self._free

    def wait(self, key: str, now: float) -> float:
        """Seconds until `key` is done; it is forgotten."""
        return max(0.0, self._ends.pop(key, now) - now)

    def rest(self, now: float) -> float:
        """Seconds until everything is done."""
        return max([0.0, *(end - now for end in self._ends.values())])


def _work(total: Estimate, seconds: float, one: Instruction, *, kernel: bool = False) -> None:
    total.seconds += seconds
    if kernel:
        total.kernels += seconds
    else:
        total.compute += seconds
    total.parts.append((seconds, f"{one.name} {one.origin[-80:]}"))


def _wait(total: Estimate, seconds: float, name: str) -> None:
    if seconds > 0:
        total.seconds += seconds
        total.waiting += seconds
        total.parts.append((seconds, f"wait for {name}"))
