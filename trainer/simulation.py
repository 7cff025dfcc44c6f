"""A simulated world: a policy that sleeps, environments that sleep and fail, and a tiny real model.

A documented part of the kit. It answers what an orchestrator's settings do with given latencies and
failures (how full are the slots, how long does the learner wait), in seconds and without a sandbox
or an accelerator; the benchmark against other trainers and the tests of the orchestrator run on it.
All draws are functions of a seed and of what they are for, so that two runs meet the same world
whatever the order in which they come to ask.

Real in it: rollouts, groups, queue, ledger, batches, the learner and its updates. Not real: what
the policy says, and the time that it and the environment take.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.to_thread

from patchgym.agent import (
    Action,
    Completion,
    Context,
    Environment,
    Observation,
    Opening,
    PolicyLoad,
    SampleRequest,
    ToolCall,
    ToolSpec,
    Trajectory,
    stream_seed,
)
from patchgym.rewards import Reward
from patchgym.sandbox import SandboxError

from .admission import Admission
from .config import RunConfig
from .domain import OnStage
from .ledger import Ledger, LedgerReader
from .progress import Progress
from .recorder import Recorder
from .resources import Resources
from .resume import Restored
from .training import Training
from .trajectory_store import TrajectoryStore

if TYPE_CHECKING:
    from .batching import TrainSequence
    from .learner import Learner

VOCABULARY = 128
ACT = ToolSpec(name="act", description="Do something.", parameters={"type": "object"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A distribution of seconds, drawn from by key."""

    spec: str
    """`const:a`, `uniform:a,b` or `lognormal:median,sigma`; ValueError for anything else."""
    seed: int = 0
    scale: float = 1.0
    """Multiplies every draw."""

    def __post_init__(self) -> None:
        self.draw(0)

    def draw(self, *key: int) -> float:
        """Seconds; the same key gives the same draw."""
        import numpy as np

        kind, _, rest = self.spec.partition(":")
        try:
            values = [float(part) for part in rest.split(",")]
            generator = np.random.default_rng([self.seed, *key])
            if kind == "const" and len(values) == 1:
                return self.scale * values[0]
            if kind == "uniform" and len(values) == 2:
                return self.scale * float(generator.uniform(values[0], values[1]))
            if kind == "lognormal" and len(values) == 2:
                drawn = values[0] * np.exp(values[1] * generator.standard_normal())
                return self.scale * float(drawn)
        except ValueError:
            pass
        raise ValueError(f"{self.spec!r} is none of const:a, uniform:a,b, lognormal:median,sigma")


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """Seconds that the slow rollout of a group takes longer, by stage."""

    generation: float = 0.0
    """In its first turn."""
    step: float = 0.0
    """In its first step of the environment."""
    reward: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How long things take, and how often they fail."""

    turns: int = 4
    """Actions of a whole rollout."""
    turn_tokens: int = 24
    """Ids sampled in a turn."""
    generation: Latency = field(default_factory=lambda: Latency(spec="uniform:0.05,0.15", seed=4))
    reset: Latency = field(default_factory=lambda: Latency(spec="const:0.1", seed=2))
    step: Latency = field(default_factory=lambda: Latency(spec="lognormal:0.3,1.0", seed=1))
    reward: Latency = field(default_factory=lambda: Latency(spec="const:0.1", seed=3))
    update: Latency = field(default_factory=lambda: Latency(spec="const:0", seed=5))
    """Seconds that an optimizer update takes beyond those of the tiny model's."""
    publish: Latency = field(default_factory=lambda: Latency(spec="const:0", seed=6))
    """Seconds until the sampler has the weights of an update, beyond those of copying them."""
    sandboxes: int = 0
    """That there are for rollouts, each held from the reset to the last step; 0: no bound."""
    stragglers: float = 0.0
    """Share of groups with one rollout that is slower than the others."""
    straggler: Straggler = field(default_factory=lambda: Straggler())
    """How much slower."""
    learns: bool = True
    """Updates are computed, by a tiny real model; else they are counted and take no time."""
    heldout: int = 0
    """Held-out tasks."""
    scored_inside: bool = False
    """The reward is taken inside the rollout, whose slot waits for it, instead of by workers."""
    failing_steps: float = 0.0
    """Share of environment steps that raise."""
    hanging: float = 0.0
    """Share of rollouts in which a step never answers."""
    dying: float = 0.0
    """Share of rollouts whose sandbox dies in a step."""
    seed: int = 0

    def slow(self, group: int, visit: int) -> Straggler:
        """What the rollout that comes as number `visit` to the task of `group` takes longer."""
        chosen = visit == 0 and self.chance(self.stragglers, "slow", group)
        return self.straggler if chosen else Straggler()

    def chance(self, share: float, *key: object) -> bool:
        """True in `share` of all keys."""
        return random.Random(stream_seed(self.seed, "chance", *key)).random() < share


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTask:
    """A task of the simulated world."""

    number: int

    @property
    def id(self) -> str:
        """By its number."""
        return f"t{self.number:05d}"


@dataclass(slots=True)
class SimulatedCounts:
    """What a simulated policy has done."""

    sampled_tokens: int = 0
    turns: int = 0
    in_flight: int = 0


class SimulatedPolicy:
    """Sleeps as long as a sampler would, and says random ids, each as likely as any other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._counts = SimulatedCounts()
        self._begun: set[str] = set()
        self.version = 0
        self.weights: Any = None
        """A true copy of what was published last."""

    async def sample(self, request: SampleRequest) -> Completion:
        """`turn_tokens` ids after a while."""
        version = self.version
        self._counts.in_flight += 1
        self._counts.turns += 1
        try:
            await anyio.sleep(self._world.generation.draw(request.seed) + self._slower(request))
        finally:
            self._counts.in_flight -= 1
        count = min(self._world.turn_tokens, request.max_new_tokens)
        generator = random.Random(request.seed)
        tokens = tuple(generator.randrange(3, VOCABULARY) for _ in range(count))
        self._counts.sampled_tokens += count
        return Completion(
            tokens=tokens,
            logprobs=(-math.log(VOCABULARY),) * count,
            policy_version=version,
            finish="length",
        )

    async def publish(self, params: Any, version: int) -> None:
        """Copy the weights, as a real sampler would have to."""
        import jax
        import jax.numpy as jnp

        def copy() -> Any:
            return jax.block_until_ready(jax.tree.map(jnp.copy, params))

        self.weights = await anyio.to_thread.run_sync(copy)
        await anyio.sleep(self._world.publish.draw(version))
        self.version = version

    def _slower(self, request: SampleRequest) -> float:
        """Seconds more for the first turn of a slow rollout."""
        first = request.rollout_id not in self._begun
        self._begun.add(request.rollout_id)
        return self._world.slow(*_place(request.rollout_id)).generation if first else 0.0

    def statistics(self) -> SimulatedCounts:
        """Counts so far."""
        return self._counts

    def load(self) -> PolicyLoad:
        """It has room for everyone."""
        return PolicyLoad(running=self._counts.in_flight)


class SimulatedAgent:
    """Reads every completion as one call, and puts observations into ids without a model's help."""

    stop: tuple[str, ...] = ()

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        """The opening's characters as ids."""
        return Context(tokens=_ids(opening.text))

    def act(self, completion: Completion) -> Action:
        """Always one call."""
        return Action(text=f"{len(completion.tokens)} ids", calls=(ToolCall(name=ACT.name),))

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        """The observation's characters as ids."""
        return Context(tokens=_ids(observations[-1].text))


class SimulatedEnvironment:
    """Sleeps, fails as told, and is over after a number of steps."""

    tools = (ACT,)
    answers = True

    def __init__(
        self,
        world: World,
        key: tuple[int, int],
        on_stage: OnStage,
        sandboxes: anyio.Semaphore | None = None,
    ) -> None:
        """`key` names the task and tells rollouts of one task apart."""
        self._world = world
        self._key = key
        self._on_stage = on_stage
        self._sandboxes = sandboxes
        self._holds = False
        self._steps = 0

    async def __aenter__(self) -> SimulatedEnvironment:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The sandbox is free."""
        if self._sandboxes is not None and self._holds:
            self._sandboxes.release()

    async def open(self) -> Opening:
        """The task's name, after the reset's seconds."""
        self._on_stage("lease wait")
        if self._sandboxes is not None:
            await self._sandboxes.acquire()
            self._holds = True
            self._on_stage("reset")
        await anyio.sleep(self._world.reset.draw(*self._key))
        return Opening(text=f"task {self._key[0]}")

    async def step(self, call: ToolCall) -> Observation:
        """Sleep, then answer, raise, or never come back."""
        world, key = self._world, (*self._key, self._steps + 1)
        last = self._steps == world.turns - 1
        if last and world.chance(world.hanging, "hang", *self._key):
            await anyio.sleep_forever()
        slower = world.slow(*self._key).step if self._steps == 0 else 0.0
        await anyio.sleep(world.step.draw(*key) + slower)
        if last and world.chance(world.dying, "die", *self._key):
            raise SandboxError("the simulated sandbox died")
        if world.chance(world.failing_steps, "fail", *key):
            raise RuntimeError("the simulated step failed")
        self._steps += 1
        return Observation(
            kind="output", text=f"observation {self._steps}", done=last, tool=call.name
        )

    async def outcome(self) -> bytes:
        """Nothing to look at: the reward is drawn."""
        if self._world.scored_inside:
            self._on_stage("scoring")
            await anyio.sleep(self._world.reward.draw(self._key[0], self._steps))
        return b""


class SimulatedDomain:
    """Implements `Domain`: any number of tasks, rewards drawn by the rollout's name."""

    def __init__(self, world: World, *, tasks: int = 1000) -> None:
        self._world = world
        self._groups: dict[int, int] = {}
        self._sandboxes = anyio.Semaphore(world.sandboxes) if world.sandboxes else None
        self._visits: Counter[int] = Counter()
        self.train = [SimulatedTask(number=number) for number in range(tasks)]
        numbers = range(tasks, tasks + world.heldout)
        self.heldout = [SimulatedTask(number=number) for number in numbers]

    def environment(self, task: SimulatedTask, on_stage: OnStage) -> Environment:
        """A fresh environment; its draws are keyed by the order in which tasks come up."""
        group = self._groups.setdefault(task.number, len(self._groups))
        visit = self._visits[task.number]
        self._visits[task.number] += 1
        return SimulatedEnvironment(self._world, (group, visit), on_stage, self._sandboxes)

    async def score(self, task: SimulatedTask, trajectory: Trajectory) -> Reward:
        """A number between 0 and 1, after the reward's seconds."""
        if not self._world.scored_inside:
            slower = self._world.slow(*_place(trajectory.rollout_id)).reward
            drawn = self._world.reward.draw(task.number, len(trajectory.turns))
            await anyio.sleep(drawn + slower)
        value = random.Random(stream_seed(self._world.seed, trajectory.rollout_id)).random()
        return Reward.of_answer(value, resolved=value > 0.5)

    def expect(self, tasks: Sequence[SimulatedTask]) -> None:
        """Nothing needs to be warm."""


@dataclass(slots=True, kw_only=True)
class SimulatedResources(Resources):
    """Resources that note when each step was published, and write no checkpoint."""

    published: list[float] = field(default_factory=list)
    """`time.time()` after each step."""

    world: World = field(default_factory=World)

    async def train(self, batch: Sequence[Sequence[TrainSequence]]) -> dict[str, object]:
        """As ever, and as much longer as the world says."""
        report = await Resources.train(self, batch)
        await anyio.sleep(self.world.update.draw(len(self.published)))
        return report

    async def publish(self) -> None:
        """As ever, and note the time."""
        await Resources.publish(self)
        self.published.append(time.time())

    async def save(self, *, wait: bool = True) -> None:
        """There is nothing worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """What came of a run."""

    published: tuple[float, ...]
    """`time.time()` when the weights of each step were out."""
    rollouts: tuple[dict[str, Any], ...]
    """The ledger's rows: id, stop_reason, seconds, finished, ..."""
    groups: tuple[dict[str, Any], ...]
    """The ledger's rows: id, state, reason, step, ..."""
    steps: tuple[dict[str, Any], ...]
    """Metrics of each step."""
    events: tuple[dict[str, Any], ...]

    def waits(self, first: int = 0) -> dict[str, float]:
        """Shares of the learner's time past the end of step `first` that it waited, by reason."""
        start, end = self.steps[first], self.steps[-1]
        seconds = end["clock_seconds"] - start["clock_seconds"]
        before, after = start["waited_seconds"], end["waited_seconds"]
        return {why: (after[why] - before.get(why, 0.0)) / seconds for why in after}


def open_simulated(config: RunConfig, world: World, *, width: int = 32) -> SimulatedResources:
    """A tiny real model with a learner, in a simulated world; blocks for its set-up."""
    from .counting_learner import CountingLearner
    from .learner import Learner
    from .model.config import ModelConfig
    from .model.decoder import init_params

    model = ModelConfig(
        vocabulary=VOCABULARY,
        width=width,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        ffn=2 * width,
        context=1024,
    )
    learner: Learner | CountingLearner = CountingLearner()
    if world.learns:
        learner = Learner(config.learner, model, init_params(model, config.run.seed))
    return SimulatedResources(
        policy=SimulatedPolicy(world),
        learner=cast("Learner", learner),
        agents=SimulatedAgent,
        domain=SimulatedDomain(world),
        checkpoints=None,
        stopped=lambda: False,
        admission=Admission(config.rollout.in_flight),
        world=world,
    )


async def simulate(
    config: RunConfig, world: World, folder: Path, resources: SimulatedResources | None = None
) -> SimulatedRun:
    """Train for `run.steps` steps in `folder`, whose ledger and trajectories are real; with
    `resources` of the same world, where they are not to be the usual ones."""
    if resources is None:
        resources = await anyio.to_thread.run_sync(open_simulated, config, world)
    store = TrajectoryStore(folder / "trajectories")
    async with Ledger(folder / "run.sqlite") as ledger:
        training = Training(
            config,
            resources,
            ledger=ledger,
            recorder=Recorder(ledger, store, config.failures),
            progress=Progress(),
            restored=Restored(),
        )
        await training.train()
    with LedgerReader(folder / "run.sqlite") as reader:
        return SimulatedRun(
            published=tuple(resources.published),
            rollouts=tuple(dict(row) for row in reader.rows("SELECT * FROM rollouts")),
            groups=tuple(dict(row) for row in reader.rows("SELECT * FROM groups")),
            steps=tuple(reader.steps()),
            events=tuple(dict(row) for row in reader.rows("SELECT * FROM events")),
        )


def _place(rollout_id: str) -> tuple[int, int]:
    """The number of a training rollout's group, and its own; (-1, -1) of any other."""
    group, _, member = rollout_id.partition("-m")
    known = group[1:].isdigit() and member.isdigit()
    return (int(group[1:]), int(member)) if known else (-1, -1)


def _ids(text: str) -> tuple[int, ...]:
    return tuple(ord(letter) % (VOCABULARY - 3) + 3 for letter in text)
