"""The training loop: four stages joined by bounded queues, and the learner that drains the last.

TrainingSource --> rollout slots --> reward workers --> GroupBook --> GroupQueue --> learner
     ^  ^                                                                              |
     |  +---- wake: a group finished or was dropped                                    |
     +------- wake: weights published, so a further group may open <-------------------+

learner   consumes groups, produces weights; waits for `per_step` fresh groups; unblocked by
          the queue, or by its deadline, which names the rollout that has been slowest.
slots     wait for the book's allowance (staleness bound); unblocked by the learner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import anyio

from .alarms import Alarms
from .batching import TrainSequence
from .config import RunConfig
from .domain import Imaged
from .errors import RunStopped
from .group import Group
from .group_flow import GroupFlow
from .held_out import HeldOut
from .idle import GENERATING, Flying, StepAccounts, flying_words, wait_line
from .ledger import Ledger
from .loop_lag import LoopLag
from .parts import RunParts
from .pipeline import Pipeline
from .profiling import Observation, stage
from .progress import Progress
from .recorder import Recorder
from .resources import Resources
from .resume import Restored
from .reward_watch import RewardWatch
from .step_metrics import StepMetrics, step_line, step_reward
from .telemetry import Gauges, gauges, signals
from .train_batch import train_groups
from .watchdog import Watchdog

LONG_WAIT = 5.0
"""Seconds after which it is shown whom the learner waits for."""


class Training:
    """One run from its present step to its last."""

    def __init__(
        self,
        config: RunConfig,
        resources: Resources,
        *,
        ledger: Ledger,
        recorder: Recorder,
        progress: Progress,
        restored: Restored,
        on_step: Callable[[int, Mapping[str, object]], None] = lambda step, metrics: None,
    ) -> None:
        """`on_step` is told of each step that was applied, by its number from 0 and its row."""
        self._config = config
        self._on_step = on_step
        self._resources = resources
        self._ledger = ledger
        self._recorder = recorder
        self._progress = progress
        self._board = resources.board
        self._accounts = StepAccounts(self._board)
        self._clock = self._accounts.clock
        self._alarms = Alarms(ledger, progress)
        self._rewards = RewardWatch(config.reward)
        self._pipeline = self._make_pipeline()
        parts = RunParts(
            config=config,
            resources=resources,
            ledger=ledger,
            recorder=recorder,
            progress=progress,
            rewards=self._rewards,
            alarms=self._alarms,
        )
        self._groups = GroupFlow(parts, self._pipeline, restored, describe=self._describe)
        self.held_out = HeldOut(parts, self._make_pipeline)
        self._watchdog = Watchdog(
            self._moved, self._describe, self._alarms.stalled, limit=config.run.stall_limit
        )
        self._lag = LoopLag()
        slots = config.rollout.in_flight
        self._metrics = StepMetrics(resources.policy, self._pipeline, self._lag, slots=slots)
        self._skipped = restored.skipped
        for words in restored.damaged:
            self._alarms.ring("damaged", words)

    async def train(self) -> None:
        """Run the remaining steps."""
        self._progress.enter("training")
        await self._recorder.begin()
        domain = self._resources.domain
        if isinstance(domain, Imaged):
            images = {task.id: domain.image_of(task) for task in domain.train}
            self._ledger.meta("images", images)
        self._accounts = StepAccounts(self._board)
        self._clock = self._accounts.clock
        async with anyio.create_task_group() as group:
            self._tasks = group
            group.start_soon(self._rollouts)
            group.start_soon(self._watchdog.run)
            group.start_soon(self._lag.run)
            if self._config.group.straggler_seconds:
                group.start_soon(self._groups.stragglers)
            self._groups.begin()
            while self._resources.learner.step < self._config.run.steps:
                with signals.step_span(self._resources.learner.step):
                    await self._step()
            self._groups.source.close()
            group.cancel_scope.cancel()  # rollouts of groups that no step will train

    def refresh(self) -> None:
        """Bring the progress up to date, for the view."""
        progress, queue, state = self._progress, self._groups.queue, self._groups.book.state()
        progress.step, progress.steps = self._resources.learner.step, self._config.run.steps
        progress.queue_depth, progress.queue_capacity = len(queue), queue.capacity
        progress.open_groups, progress.dropped = state.open, state.dropped
        progress.stages = self._board.counts()
        waits = progress.phase == "training" and self._clock.kind == "waiting"
        long = waits and self._clock.seconds > LONG_WAIT
        progress.waits_for = self._waits() if long else ""
        progress.learner = self._clock.kind if progress.phase == "training" else ""
        progress.learner_seconds = self._clock.seconds
        if progress.phase == "training":
            progress.account = self._accounts.whole()

    def gauges(self) -> Gauges:
        """Where the run is, for whoever collects metrics."""
        idle, sampler = self._clock.report(), self._board.sampler_seconds()
        generating = sampler.get(GENERATING, 0.0)
        policy, load = self._resources.policy, self._resources.policy.load()
        state = self._groups.book.state()
        return Gauges(
            policy_version=policy.version,
            queue_depth=len(self._groups.queue),
            queue_capacity=self._groups.queue.capacity,
            open_groups=state.open,
            trained_groups=self._groups.trained,
            dropped_groups=state.dropped,
            stages=self._board.counts(),
            learner_seconds={**idle.busy, "waiting": sum(idle.waiting.values())},
            sampler_seconds={
                "generating": generating,
                "waiting": sum(sampler.values()) - generating,
            },
            sampler_running=load.running,
            sampler_queued=load.waiting,
            sampled_tokens=policy.statistics().sampled_tokens,
        )

    def _make_pipeline(self) -> Pipeline:
        return Pipeline(
            self._resources.pipeline_parts(),
            limits=self._config.rollout,
            scoring=self._config.scoring,
        )

    async def _rollouts(self) -> None:
        slots = self._config.rollout.in_flight
        await self._pipeline.run(self._groups.source, self._groups.deliver, slots=slots)

    def _describe(self) -> str:
        """What waits for what, for the watchdog."""
        group, queue = self._config.group, self._groups.queue
        return (
            f"{self._waits()}\nstep {self._resources.learner.step + 1}; "
            f"queue: {len(queue)} of {queue.capacity} groups, {group.per_step} a step; "
            f"open groups: {self._groups.book.state().open}; "
            f"policy: version {self._resources.policy.version}, {self._resources.policy.load()}; "
            f"stages: {self._board.counts()}\n{self._board.listing()}"
        )

    def _waits(self) -> str:
        """What the learner does or waits for, in one line."""
        return wait_line(self._clock.kind, self._clock.seconds, self._flying())

    def _flying(self) -> list[Flying]:
        """Rollouts under way for groups, the one longest in its stage first."""
        aboard = self._pipeline.aboard
        return [each for each in self._board.entries() if each.rollout_id in aboard]

    def observe(self) -> Observation:
        """Where the run is, for a profile."""
        waits = self._clock.kind == "waiting"
        return Observation(
            step=self._resources.learner.step,
            policy_version=self._resources.policy.version,
            waiting=self._describe() if waits else "",
        )

    def _moved(self) -> object:
        """Changes whenever a rollout, the queue or the learner gets anywhere."""
        # While the learner works on its device nothing else need move.
        busy = time.monotonic() if self._clock.kind == "training" else 0.0
        return self._board.moves, len(self._groups.queue), self._resources.learner.step, busy

    async def _step(self) -> None:
        """One optimizer update: take, train, commit, publish."""
        learner, config = self._resources.learner, self._config
        step = learner.step
        with stage("wait"), self._clock.span("waiting"):
            groups = await self._groups.take(step, lambda: flying_words(self._flying()))
        self._recorder.groups(groups, "taken", step=step)
        batch = train_groups(
            groups, config.group.estimator, config.reward.normalize, config.learner
        )
        with self._clock.span("training"):
            report = await self._update(step, batch, groups)
        if not report["applied"]:
            await self._skip(step, report, groups)
            return
        # No waiting between the end of the update and this: see the invariants of `ledger`.
        metrics = self._commit(step, report, groups)
        self._alarms.compare(step, report, groups, config.learner.mismatch_limit)
        with stage("publish"), self._clock.span("publishing"):
            await self._resources.publish()
        self._groups.drop_late()
        self._note(step, metrics)
        self._resources.reward = step_reward(metrics, groups)
        self._alarms.rewards(self._rewards.note_step(step))
        if self.held_out.begins_at(learner.step):
            self._tasks.start_soon(self.held_out.beside, learner.step)
        await self._ledger.flush()
        if self._writes(learner.step):
            with self._clock.span("checkpointing"):
                await self._ledger.backup()
                await self._resources.save(wait=False)

    def _commit(
        self, step: int, report: Mapping[str, object], groups: Sequence[Group]
    ) -> dict[str, object]:
        """An update was applied: on record, with what is known of the step."""
        self._groups.trained += len(groups)
        idle = self._clock.report()
        metrics = {
            **report,
            **self._metrics.row(
                groups,
                self._recorder.take_window(),
                step,
                queue=self._groups.queue.state(step),
                dropped=self._groups.book.dropped,
            ),
            "clock_seconds": idle.seconds,
            "waited_seconds": idle.waiting,
            "idle": self._accounts.step(),
        }
        self._recorder.commit(groups, step, metrics, self._accounts.whole())
        return metrics

    async def _update(
        self, step: int, batch: Sequence[Sequence[TrainSequence]], groups: Sequence[Group]
    ) -> dict[str, object]:
        """The update itself; given up, its groups are ready again."""
        try:
            return await self._resources.train(batch)
        except BaseException:
            if self._resources.learner.step > step:
                self._commit(step, {}, groups)  # applied, but nobody waits for its report
            else:
                self._recorder.groups(groups, "ready", step=None)
            raise

    def _writes(self, step: int) -> bool:
        """Whether a checkpoint is due; the last one is written when the run is over."""
        section, every = self._config.checkpoint, self._config.evaluation.every
        measured = section.best and every > 0 and step % every == 0
        return step < self._config.run.steps and (step % section.every == 0 or measured)

    async def _skip(self, step: int, report: Mapping[str, object], groups: Sequence[Group]) -> None:
        """An update that came to nothing: its groups are put on record, and others are taken."""
        names = [group.group_id for group in groups]
        words = f"step {step + 1} was not applied: {report['reason']}"
        self._ledger.event("skipped", step=step, groups=names, reason=report["reason"])
        self._skipped += 1
        if not report["not_finite"] or self._skipped > self._config.learner.skip_budget:
            # The groups stay "taken": nothing was learned from them, and a resume has them ready.
            raise RunStopped(words)
        self._groups.leave_out(groups, "not_finite")
        self._alarms.ring("skipped", f"{words}; its groups are left out", names)
        await self._ledger.flush()

    def _note(self, step: int, metrics: dict[str, object]) -> None:
        self._progress.stepped({**metrics, "step": step})
        signals.step_applied(metrics)
        gauges.show_step(metrics)
        self._on_step(step, metrics)
        idle = self._clock.report().idle_share
        self._progress.listener(step_line(step, self._config.run.steps, metrics, idle))
