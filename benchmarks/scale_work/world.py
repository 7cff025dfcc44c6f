"""The world that is measured and checked: real pools, real tests, a policy that sleeps and answers.

Real in it: Docker sandboxes, checkouts, test runs, verdicts, rollouts, groups, the queue, the
ledger. Given: what the policy says (half of its answers are right, by their seed), and how long it
takes for it; updates are counted and take a given time.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio

from patchgym.agent import (
    Completion,
    PolicyLoad,
    RepairAgent,
    RolloutLimits,
    SampleRequest,
    Trajectory,
    rollout,
)
from patchgym.agent.scripted import CharacterTokenizer, ScriptedPolicy
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import RewardConfig
from patchgym.trainer.admission import Admission
from patchgym.trainer.config import SandboxSection, ScoringSection, load_config
from patchgym.trainer.counting_learner import CountingLearner
from patchgym.trainer.domain import Domain
from patchgym.trainer.ledger import Ledger, LedgerReader
from patchgym.trainer.progress import Progress
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.repositories import RepositoryDomain, open_task_domain
from patchgym.trainer.resume import Restored
from patchgym.trainer.sft.gold import gold_function
from patchgym.trainer.simulation import Latency, SimulatedResources, World
from patchgym.trainer.training import Training
from patchgym.trainer.trajectory_store import TrajectoryStore

TURNS, SOLVED = 2, 0.5
"""Answers of a rollout at most, and the share of them that is right."""
GROUP, STALENESS = 4, 2
UPDATE = 0.5
"""Seconds of an update."""
LIMITS = RolloutLimits(max_turns=TURNS, max_new_tokens=4000, context_tokens=32000)
SETTINGS = {
    "run.steps": "100000",
    "group.size": str(GROUP),
    "group.max_staleness": str(STALENESS),
    "group.asynchronous": "true",
    "rollout.max_new_tokens": "4000",
    "rollout.context_tokens": "32000",
    "learner.row_tokens": "[32000]",
    "evaluation.samples": "0",
}
Right = Callable[[int, int], bool]
"""Whether the answer of a turn (from 0) with a seed is right."""


def half(turn: int, seed: int) -> bool:
    """Each answer is right or wrong by its seed."""
    return random.Random(seed).random() < SOLVED


class Answers:
    """Right and wrong functions for the bundled tasks, each different from all others."""

    def __init__(self, tasks: Sequence[Task], right: Right = half) -> None:
        self._right = right
        self._known: dict[str, tuple[str, str]] = {}
        for task in tasks:
            assert task.focus is not None and task.files is not None
            source = task.files[task.focus.path]
            gold = gold_function(task, source)
            assert gold is not None
            self._known[source.strip()] = gold, source.strip()

    def __call__(self, text: str, seed: int) -> str:
        """The function, with a comment that tells it from every other answer."""
        source = text.partition("```python\n")[2].partition("\n```")[0].strip()
        gold, buggy = self._known[source]
        turn = text.count("\nFix it.")
        chosen = gold if self._right(turn, seed) else buggy
        return f"{chosen.rstrip()}\n    # {seed}\n```"


class SleepingPolicy(ScriptedPolicy):
    """A scripted policy that takes as long as it is told to."""

    def __init__(self, answers: Answers, latency: str) -> None:
        super().__init__(CharacterTokenizer(), answers)
        self._latency = Latency(spec=latency, seed=7)
        self.sampled_tokens = 0

    async def sample(self, request: SampleRequest) -> Completion:
        """The answer, after the latency that its seed draws."""
        await anyio.sleep(self._latency.draw(request.seed))
        completion = await super().sample(request)
        self.sampled_tokens += len(completion.tokens)
        return completion

    async def publish(self, params: Any, version: int) -> None:
        """Nothing changes but the version."""
        self.version = version

    def statistics(self) -> SleepingPolicy:
        """Itself: it counts what it samples."""
        return self

    def load(self) -> PolicyLoad:
        """Nothing is ever in line."""
        return PolicyLoad()


def agent() -> RepairAgent:
    """A fresh agent of the policy's tokenizer."""
    return RepairAgent(CharacterTokenizer())


def tasks(count: int = 64) -> Sequence[Task]:
    """The first bundled tasks."""
    return bundled_tasks("train")[:count]


@asynccontextmanager
async def open_world(slots: int, workers: int) -> AsyncIterator[RepositoryDomain]:
    """Real tasks with real pools: `slots` sandboxes for rollouts, `workers` for verdicts."""
    async with AsyncExitStack() as stack:
        domain = await open_task_domain(
            tasks(),
            (),
            kind="repair",
            sandbox=SandboxSection(slots=slots, tests_timeout=30.0),
            scoring=ScoringSection(workers=workers, reruns=0, cache=""),
            reward=RewardConfig.of({"patch_size": 0.0}),
            stack=stack,
        )
        while domain.pool.statistics().ready < slots:  # noqa: ASYNC110
            await anyio.sleep(0.02)
        yield domain


async def act(
    domain: Domain, task: Task, policy: ScriptedPolicy, seed: int, environment: Any = None
) -> Trajectory:
    """One real rollout."""
    return await rollout(
        task_id=task.id,
        rollout_id=f"r{seed}",
        seed=seed,
        agent=agent(),
        environment=environment or domain.environment(task, _no_stage),
        policy=policy,
        limits=LIMITS,
    )


def _no_stage(stage: str, /, *, sandbox: str = "") -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """What came of a training run of given length."""

    rollouts: tuple[tuple[float, str], ...]
    """Seconds since the start, and stop reason, of each that was delivered."""
    seconds: float

    def turned_over(self, slots: int) -> float:
        """Seconds until as many were delivered as there are slots. SystemExit for a run that is too
        short for more than that."""
        times = sorted(when for when, _ in self.rollouts)
        if len(times) < 2 * slots:
            raise SystemExit(
                f"{len(times)} rollouts in {self.seconds:.0f} s with {slots} in flight: too few to "
                "tell a rate from; raise --length, or wait for a quiet machine"
            )
        return times[slots - 1]

    def rate(self, warmup: float) -> float:
        """Scored rollouts a second past the warm-up (seconds)."""
        scored = [when for when, _ in self.rollouts if when > warmup]
        return len(scored) / (self.seconds - warmup)

    def rates(self, warmup: float, parts: int = 5) -> list[float]:
        """The same of equal parts of the time past the warm-up."""
        length = (self.seconds - warmup) / parts
        places = [
            min(int((when - warmup) // length), parts - 1)
            for when, _ in self.rollouts
            if when > warmup
        ]
        return [places.count(part) / length for part in range(parts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealCase:
    """A real training run to make."""

    slots: int
    workers: int
    seconds: float = 60.0
    turns: int = TURNS
    """At most."""

    @property
    def per_step(self) -> int:
        """Groups of an update: half of what is in flight."""
        return max(self.slots // GROUP // 2, 1)


async def train(case: RealCase, domain: Domain, policy: SleepingPolicy) -> RealRun:
    """The whole pipeline for `case.seconds`; rollouts under way at the end are let go."""
    given = {
        "rollout.in_flight": str(case.slots),
        "group.per_step": str(case.per_step),
        "scoring.workers": str(case.workers),
        "rollout.max_turns": str(case.turns),
    }
    config = load_config(None, [*SETTINGS.items(), *given.items()])
    resources = SimulatedResources(
        policy=policy,
        learner=cast(Any, CountingLearner()),
        agents=partial(agent),
        domain=domain,
        checkpoints=None,
        stopped=lambda: False,
        admission=Admission(case.slots),
        world=World(update=Latency(spec=f"const:{UPDATE}")),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = TrajectoryStore(folder / "trajectories")
        started = time.time()
        async with Ledger(folder / "run.sqlite") as ledger:
            training = Training(
                config,
                resources,
                ledger=ledger,
                recorder=Recorder(ledger, store, config.failures),
                progress=Progress(),
                restored=Restored(),
            )
            with anyio.move_on_after(case.seconds):
                await training.train()
            ended = time.time()
        with LedgerReader(folder / "run.sqlite") as reader:
            rows = list(reader.rows("SELECT finished, stop_reason, reward FROM rollouts"))
    done = tuple((row[0] - started, row[1]) for row in rows if row[2] is not None)
    return RealRun(rollouts=done, seconds=ended - started)
