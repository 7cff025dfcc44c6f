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
from typing import Any

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

VOCABULARY = 128
ACT = ToolSpec(name="act", description="Do something.", parameters={"type": "object"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A distribution of seconds, drawn from by key."""

    spec: str
    """`const:a`, `uniform:a,b` or `lognormal:median,sigma`; ValueError for anything else."""
    seed: int = 0

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
                return values[0]
            if kind == "uniform" and len(values) == 2:
                return float(generator.uniform(values[0], values[1]))
            if kind == "lognormal" and len(values) == 2:
                return float(values[0] * np.exp(values[1] * generator.standard_normal()))
        except ValueError:
            pass
        raise ValueError(f"{self.spec!r} is none of const:a, uniform:a,b, lognormal:median,sigma")


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
    failing_steps: float = 0.0
    """Share of environment steps that raise."""
    hanging: float = 0.0
    """Share of rollouts in which a step never answers."""
    dying: float = 0.0
    """Share of rollouts whose sandbox dies in a step."""
    seed: int = 0

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
        self.version = 0
        self.weights: Any = None
        """A true copy of what was published last."""

    async def sample(self, request: SampleRequest) -> Completion:
        """`turn_tokens` ids after a while."""
        version = self.version
        self._counts.in_flight += 1
        self._counts.turns += 1
        try:
            await anyio.sleep(self._world.generation.draw(self._counts.turns))
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
        self.version = version

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

    def __init__(self, world: World, key: tuple[int, int], on_stage: OnStage) -> None:
        """`key` names the task and tells rollouts of one task apart."""
        self._world = world
        self._key = key
        self._on_stage = on_stage
        self._steps = 0

    async def __aenter__(self) -> SimulatedEnvironment:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is held."""

    async def open(self) -> Opening:
        """The task's name, after the reset's seconds."""
        self._on_stage("lease wait")
        await anyio.sleep(self._world.reset.draw(*self._key))
        return Opening(text=f"task {self._key[0]}")

    async def step(self, call: ToolCall) -> Observation:
        """Sleep, then answer, raise, or never come back."""
        world, key = self._world, (*self._key, self._steps + 1)
        last = self._steps == world.turns - 1
        if last and world.chance(world.hanging, "hang", *self._key):
            await anyio.sleep_forever()
        await anyio.sleep(world.step.draw(*key))
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
        return b""


class SimulatedDomain:
    """Implements `Domain`: any number of tasks, rewards drawn by the rollout's name."""

    def __init__(self, world: World, *, tasks: int = 1000) -> None:
        self._world = world
        self._groups: dict[int, int] = {}
        self._visits: Counter[int] = Counter()
        self.train = [SimulatedTask(number=number) for number in range(tasks)]
        self.heldout: list[SimulatedTask] = []

    def environment(self, task: SimulatedTask, on_stage: OnStage) -> Environment:
        """A fresh environment; its draws are keyed by the order in which tasks come up."""
        group = self._groups.setdefault(task.number, len(self._groups))
        visit = self._visits[task.number]
        self._visits[task.number] += 1
        return SimulatedEnvironment(self._world, (group, visit), on_stage)

    async def score(self, task: SimulatedTask, trajectory: Trajectory) -> Reward:
        """A number between 0 and 1, after the reward's seconds."""
        await anyio.sleep(self._world.reward.draw(task.number, len(trajectory.turns)))
        value = random.Random(stream_seed(self._world.seed, trajectory.rollout_id)).random()
        return Reward.of_answer(value, resolved=value > 0.5)

    def expect(self, tasks: Sequence[SimulatedTask]) -> None:
        """Nothing needs to be warm."""


@dataclass(slots=True, kw_only=True)
class SimulatedResources(Resources):
    """Resources that note when each step was published, and write no checkpoint."""

    published: list[float] = field(default_factory=list)
    """`time.time()` after each step."""

    async def publish(self) -> None:
        """As ever, and note the time."""
        await Resources.publish(self)
        self.published.append(time.time())

    async def save(self) -> None:
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


def open_simulated(config: RunConfig, world: World, *, width: int = 32) -> SimulatedResources:
    """A tiny real model with a learner, in a simulated world; blocks for its set-up."""
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
    return SimulatedResources(
        policy=SimulatedPolicy(world),
        learner=Learner(config.learner, model, init_params(model, config.run.seed)),
        agents=SimulatedAgent,
        domain=SimulatedDomain(world),
        checkpoints=None,
        stopped=lambda: False,
        admission=Admission(config.rollout.in_flight),
    )


async def simulate(config: RunConfig, world: World, folder: Path) -> SimulatedRun:
    """Train for `run.steps` steps in `folder`, whose ledger and trajectories are real."""
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


def _ids(text: str) -> tuple[int, ...]:
    return tuple(ord(letter) % (VOCABULARY - 3) + 3 for letter in text)
