"""What the model of a cluster is given: sizes, times, and prices.

Every number is an input. `benchmarks/scale.py --measure` writes those that can be measured on one
machine; the others (how many of what, what an hour costs) are for the reader to say.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_type_hints

from .duration import Duration

T = TypeVar("T")
NOTHING = Duration("const:0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Something that a sandbox host does for one rollout."""

    seconds: Duration = NOTHING
    """Alone on an idle host."""
    cores: float = 1.0
    """Cores of the host that it keeps busy meanwhile, on average; above 0. Where the cores that all
    activities of a host want together are more than it has, all slow down by the same factor."""
    driver_seconds: float = 0.0
    """Of the rollout process's processor, on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one rollout is made of."""

    turns: int = 2
    """Turns at most."""
    solved: float = 0.0
    """Chance of each turn to end its rollout as solved."""
    turn_tokens: Duration = Duration("const:48")
    """Tokens sampled in a turn."""
    opening_tokens: float = 220.0
    """Tokens of context that a rollout begins with; read in once a group (the prefix cache)."""
    observation_tokens: float = 40.0
    """Tokens of context that each turn adds, to be read in by the next."""
    lease: Literal["opening", "call"] = "call"
    """A sandbox is leased when the rollout opens, or with the first turn's tool call."""
    checkout: Activity = field(default_factory=Activity)
    """Once in every lease."""
    call: Activity = field(default_factory=Activity)
    """A turn's tool call: the tests, or a command."""
    score: Activity = field(default_factory=Activity)
    """The verdict in its fresh sandbox, checkout included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Accelerators that sample, each with continuous batching."""

    accelerators: int = 1
    """0: turns take `latency` alone, however many there are."""
    steps: tuple[tuple[float, float], ...] = ((1.0, 0.05), (32.0, 0.1))
    """Measured pairs (turns at once, seconds of a decoding step), by rising turns; between them
    the seconds go along a line, and past the last along the last line."""
    turns: int = 32
    """Turns at once on one accelerator, the rest wait in line."""
    prefill_rate: float = 1000.0
    """Tokens of context a second; decoding pauses meanwhile."""
    speed: float = 1.0
    """How many times as fast as measured."""
    latency: Duration = NOTHING
    """Seconds of each turn that nothing here explains: the network, or a policy that sleeps."""

    def step_seconds(self, turns: float) -> float:
        """Seconds of a decoding step with `turns` (1 or more) running."""
        return _between(self.steps, turns) / self.speed

    @property
    def token_rate(self) -> float:
        """Most tokens a second of one accelerator, prefill aside."""
        counts = {self.turns, *(n for n, _ in self.steps if n <= self.turns)}
        return max(n / self.step_seconds(n) for n in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Machines with a Docker engine."""

    count: int = 1
    cores: float = 2.0
    """Of one host."""
    sandboxes: int = 0
    """For rollouts, on all hosts together; 0: as many as rollouts in flight."""
    recycle: Activity = field(default_factory=Activity)
    """From the end of a lease to the next ready sandbox in its slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Reward workers; each has a sandbox of its own, on the same hosts."""

    workers: int = 2
    sandboxes: int = 0
    """For verdicts, on all hosts together; 0: as many as workers."""
    queue: int = 64
    """Finished rollouts that may wait for a worker before their slots wait instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """As in a run's `[group]` section."""

    size: int = 8
    per_step: int = 4
    max_staleness: int = 1
    asynchronous: bool = False
    drop_equal: bool = True
    """Groups whose members all are solved, or all not, are dropped: they carry no signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """Accelerators that learn."""

    accelerators: int = 1
    seconds: float = 0.0
    """Of a step, whatever its size and the accelerators."""
    token_seconds: float = 0.0
    """Of one accelerator for one token of a trajectory, context included; divided by their number
    (ideal scaling: measure your own, and put what is lost into it)."""
    speed: float = 1.0
    """How many times as fast as measured."""
    publish_seconds: float = 0.0
    """Until the samplers have the new weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orchestrator:
    """The processes that run rollouts."""

    processes: int = 1
    """Each keeps one core busy at most."""
    turn_seconds: float = 0.0
    """Processor seconds of a turn, tools aside."""
    rollout_seconds: float = 0.0
    """Processor seconds of a rollout, turns aside."""
    on_host: bool = False
    """It shares the cores of the first host, as on a single machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """In any one currency; no vendor's prices are known here."""

    accelerator_hour: float = 0.0
    """Of one accelerator, that samples or learns."""
    host_hour: float = 0.0
    """Of one sandbox host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleParameters:
    """A cluster and its work. ValueError, naming the field, for what can't be."""

    slots: int = 64
    """Rollouts in flight."""
    workload: Workload = field(default_factory=Workload)
    sampler: Sampler = field(default_factory=Sampler)
    hosts: Hosts = field(default_factory=Hosts)
    scoring: Scoring = field(default_factory=Scoring)
    groups: Groups = field(default_factory=Groups)
    learner: Learner = field(default_factory=Learner)
    orchestrator: Orchestrator = field(default_factory=Orchestrator)
    prices: Prices = field(default_factory=Prices)
    seed: int = 0

    def __post_init__(self) -> None:
        counts = {
            "slots": self.slots,
            "workload.turns": self.workload.turns,
            "sampler.turns": self.sampler.turns,
            "hosts.count": self.hosts.count,
            "scoring.workers": self.scoring.workers,
            "scoring.queue": self.scoring.queue,
            "groups.size": self.groups.size,
            "groups.per_step": self.groups.per_step,
            "learner.accelerators": self.learner.accelerators,
            "orchestrator.processes": self.orchestrator.processes,
        }
        for name, count in counts.items():
            _require(count >= 1, name, count, "at least 1")
        for name, rate in {
            "sampler.prefill_rate": self.sampler.prefill_rate,
            "sampler.speed": self.sampler.speed,
            "learner.speed": self.learner.speed,
            "hosts.cores": self.hosts.cores,
            "workload.checkout.cores": self.workload.checkout.cores,
            "workload.call.cores": self.workload.call.cores,
            "workload.score.cores": self.workload.score.cores,
            "hosts.recycle.cores": self.hosts.recycle.cores,
        }.items():
            _require(rate > 0 and math.isfinite(rate), name, rate, "above 0")
        steps = self.sampler.steps
        rising = all(a[0] < b[0] for a, b in zip(steps, steps[1:], strict=False))
        good = bool(steps) and rising and steps[0][0] >= 1 and all(s > 0 for _, s in steps)
        _require(good, "sampler.steps", steps, "pairs by rising turns from 1 up")
        _require(0 <= self.workload.solved <= 1, "workload.solved", self.workload.solved, "0 to 1")
        staleness = self.groups.max_staleness
        _require(staleness >= 0, "groups.max_staleness", staleness, "at least 0")
        for name, sandboxes in {
            "hosts.sandboxes": self.hosts.sandboxes,
            "scoring.sandboxes": self.scoring.sandboxes,
        }.items():
            _require(sandboxes >= 0, name, sandboxes, "at least 0")

    def to_json(self) -> str:
        """One JSON object that `from_json` reads back as the same parameters."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> ScaleParameters:
        """From an object with any of the fields; the rest stays as it is by default. ValueError for
        what is unknown or can't be."""
        return _made(cls, json.loads(text))


def _made(kind: type[T], mapping: Mapping[str, Any]) -> T:
    """A dataclass from a mapping, nested ones too."""
    hints = get_type_hints(kind)
    unknown = sorted(set(mapping) - set(hints))
    if unknown:
        raise ValueError(f"{kind.__name__} has no {unknown[0]!r}: there are {', '.join(hints)}")
    return kind(**{name: _value(hints[name], given) for name, given in mapping.items()})


def _value(hint: Any, given: Any) -> Any:
    if hint is Duration:
        return Duration(given["spec"] if isinstance(given, Mapping) else given)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _made(hint, given)
    return tuple(tuple(pair) for pair in given) if isinstance(given, list) else given


def _between(pairs: tuple[tuple[float, float], ...], at: float) -> float:
    """Linear between the pairs, level before the first, along the last line past the last."""
    if at <= pairs[0][0] or len(pairs) == 1:
        return pairs[0][1]
    right = next((i for i in range(1, len(pairs)) if pairs[i][0] >= at), len(pairs) - 1)
    (x, y), (u, v) = pairs[right - 1], pairs[right]
    return y + (v - y) * (at - x) / (u - x)


def _require(good: bool, name: str, value: object, wanted: str) -> None:
    if not good:
        raise ValueError(f"{name} is {value!r}: it must be {wanted}")
