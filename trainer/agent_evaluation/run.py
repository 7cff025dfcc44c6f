"""Rolls out what is missing of an evaluation, and keeps each rollout with its verdict at once.

    SampleSource ─► Pipeline (slots act, workers score) ─► keep: trajectory, then ledger
         ▲                                                   │
         └── again: policy, sandbox or environment failed ───┘

A rollout that was cut off (turns, context or time ran out) is judged by what it has left behind:
the training pipeline leaves those unscored, so that is done here, beside the slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import anyio
import anyio.to_thread

from patchgym.agent import AgentFactory, RolloutLimits, Trajectory
from patchgym.agent.scaffolds import make_agent
from patchgym.datasets.task import Task
from patchgym.rewards import Reward
from patchgym.trainer.admission import Admission
from patchgym.trainer.config import AgentSection, ScoringSection
from patchgym.trainer.domain import Domain
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import WorkItem
from patchgym.trainer.idle import StageBoard
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.pipeline import Pipeline, PipelineParts, Rollouts
from patchgym.trainer.policies import OpenedPolicy
from patchgym.trainer.policies.text_policy import CONTEXT_CHARACTERS, TURN_CHARACTERS
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.trajectory_store import TrajectoryStore

from .folder import EvaluationFolder
from .samples import PURPOSE, own_doing, read_samples
from .settings import AgentSettings
from .source import SampleSource, sample_items


class Watcher(Protocol):
    """Sees an evaluation go on; called on the event loop, so it must not block."""

    def planned(self, total: int, taken_over: int) -> None:
        """So many rollouts in all, and so many that were there already."""
        ...

    def started(self, item: WorkItem) -> None:
        """A rollout begins."""
        ...

    def finished(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        """It is kept."""
        ...

    def repeated(self, item: WorkItem, trajectory: Trajectory) -> None:
        """It failed by no doing of the policy, and comes again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvaluation:
    """One evaluation, ready to run."""

    folder: EvaluationFolder
    settings: AgentSettings
    tasks: Sequence[Task]
    samples: int
    opened: OpenedPolicy
    domain: Domain
    slots: int
    """Rollouts at once."""
    scoring: ScoringSection
    watcher: Watcher
    rollouts: Rollouts | None = None
    """Where rollouts are acted; None: in this process."""
    retries: int = 2
    """Fresh attempts after a failure of policy, sandbox or environment."""

    async def run(self) -> None:
        """Roll out what is missing. RunStopped when too much fails (see `failures`)."""
        items = sample_items(self.tasks, self.samples, self.settings.seed)
        done = await anyio.to_thread.run_sync(settled, self.folder)
        missing = [item for item in items if item.rollout_id not in done]
        self.watcher.planned(len(items), len(items) - len(missing))
        source = SampleSource(
            missing, seed=self.settings.seed, retries=self.retries, started=self.watcher.started
        )
        async with Ledger(self.folder.run.ledger) as ledger:
            ledger.meta("state", "running")
            try:
                await self._roll_out(source, ledger)
                ledger.meta("state", "finished")
            except BaseException:
                ledger.meta("state", "stopped")
                raise

    async def _roll_out(self, source: SampleSource, ledger: Ledger) -> None:
        store = TrajectoryStore(self.folder.run.trajectories)
        keeper = _Keeper(
            recorder=Recorder(ledger, store, FailureBudgets()),
            ledger=ledger,
            source=source,
            opened=self.opened,
            watcher=self.watcher,
        )
        pipeline = Pipeline(
            PipelineParts(
                policy=self.opened.policy,
                agents=self._agents(),
                domain=self.domain,
                board=StageBoard(),
                admission=Admission(self.slots),
                rollouts=self.rollouts,
            ),
            limits=self._limits(),
            scoring=self.scoring,
        )
        judges = anyio.CapacityLimiter(self.scoring.workers)

        async def judge(item: WorkItem, trajectory: Trajectory) -> None:
            async with judges:
                reward = await self.domain.score(item.task, trajectory)
            await keeper.keep(item, trajectory, reward)

        async with anyio.create_task_group() as late:

            async def deliver(item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
                if reward.total is None and own_doing(trajectory):
                    late.start_soon(judge, item, trajectory)
                else:
                    await keeper.keep(item, trajectory, reward)

            await pipeline.run(source, deliver, slots=self.slots)

    def _agents(self) -> AgentFactory:
        config = agent_section(self.settings, self.opened)
        return make_agent(self.settings.scaffold, self.opened.tokenizer, config)

    def _limits(self) -> RolloutLimits:
        """In ids: a text policy's are characters."""
        limits = self.settings.limits
        if self.opened.trainable:
            return limits
        new = limits.max_new_tokens * TURN_CHARACTERS
        return replace(
            limits,
            max_new_tokens=new,
            # What is set aside for the turn to come must not eat the context up.
            context_tokens=limits.context_tokens * CONTEXT_CHARACTERS + new,
        )


def agent_section(settings: AgentSettings, opened: OpenedPolicy) -> AgentSection:
    """How the agents of an evaluation are made; a text policy's ids are characters."""
    section = AgentSection(scaffold=settings.scaffold)
    if opened.trainable:
        return section
    return replace(section, observation_tokens=section.observation_tokens * CONTEXT_CHARACTERS)


def settled(folder: EvaluationFolder) -> set[str]:
    """Rollouts that need not be made again: the outcome is known, or flaky tests alone keep it
    from being known. Blocking."""
    if not folder.run.ledger.is_file():
        return set()
    found = read_samples(folder.run, folder.task_ids, folder.samples)
    return {each.rollout_id for each in found if each.known or each.verdict.evidence == "flaky"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keeper:
    """Keeps finished rollouts."""

    recorder: Recorder
    ledger: Ledger
    source: SampleSource
    opened: OpenedPolicy
    watcher: Watcher

    async def keep(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        """Store a rollout; settle it, or have it made again."""
        if self.opened.use is not None:
            use = asdict(self.opened.use(trajectory.rollout_id))
            self.ledger.meta(f"use/{trajectory.rollout_id}", use)
        await self.recorder.rollout(PURPOSE, item, trajectory, reward)
        if self.source.settle(item, trajectory):
            self.watcher.finished(item, trajectory, reward)
        else:
            self.watcher.repeated(item, trajectory)
