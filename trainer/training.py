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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anyio
import anyio.to_thread

from patchgym.agent import Trajectory
from patchgym.datasets.task import Task
from patchgym.rewards import Reward

from .config import RunConfig
from .errors import RunStopped
from .evaluation import evaluate
from .group import Group, GroupBook, Member, WorkItem, allowance
from .group_queue import GroupQueue
from .idle import LearnerClock
from .ledger import Ledger
from .pipeline import Pipeline
from .progress import Progress
from .recorder import Recorder, Window
from .resources import Resources
from .resume import Restored
from .sources import TrainingSource
from .statistics import PassRate, percentile
from .task_sets import RevisitOrder
from .train_batch import train_groups


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
    ) -> None:
        self._config = config
        self._resources = resources
        self._ledger = ledger
        self._recorder = recorder
        self._progress = progress
        self._board = resources.board
        self._clock = LearnerClock(self._board)
        self._queue = GroupQueue(config.group.per_step * (1 + config.group.max_staleness))
        self._ready = list(restored.ready)
        self._order = RevisitOrder(resources.train_tasks, config.run.seed, config.tasks.revisit)
        self._order.replay(restored.visits)
        self._book = GroupBook(
            self._order,
            size=config.group.size,
            seed=config.run.seed,
            retries=config.rollout.retries,
            reopen=restored.reopen,
            first_number=restored.next_number,
            already=restored.committed + len(self._ready),
        )
        self._source = TrainingSource(self._book, self._allowance, self._opened)
        self._sampled_before = 0

    async def evaluate(self, name: str, tasks: Sequence[Task]) -> None:
        """Measure the present weights on `tasks` and keep the result under `name`."""
        version = self._resources.policy.version
        self._progress.enter(f"held-out evaluation {name} training (policy version {version})")
        result = await evaluate(
            name,
            tasks,
            self._pipeline(),
            self._config.evaluation,
            slots=self._config.rollout.in_flight,
            keep=self._recorder.rollout,
            progress=self._advance,
        )
        self._progress.evaluations[name] = result
        self._ledger.meta(f"evaluation.{name}", asdict(result))
        await self._ledger.flush()

    def recall(self, name: str, result: Mapping[str, Any]) -> None:
        """Show an evaluation that was made before the run was resumed."""
        low, high = result["interval"]
        self._progress.evaluations[name] = PassRate(**{**result, "interval": (low, high)})

    async def train(self) -> None:
        """Run the remaining steps."""
        self._progress.enter("training")
        self._clock = LearnerClock(self._board)
        async with anyio.create_task_group() as group:
            group.start_soon(self._rollouts)
            for ready in self._ready:
                await self._queue.put(ready)
            while self._resources.learner.step < self._config.run.steps:
                await self._step()
            self._source.close()
            group.cancel_scope.cancel()  # rollouts of groups that no step will train

    def refresh(self) -> None:
        """Bring the progress up to date, for the view."""
        progress, state = self._progress, self._book.state()
        progress.step, progress.steps = self._resources.learner.step, self._config.run.steps
        progress.queue_depth, progress.queue_capacity = len(self._queue), self._queue.capacity
        progress.open_groups, progress.dropped = state.open, state.dropped
        progress.stages = self._board.counts()
        progress.learner = self._clock.kind if progress.phase == "training" else ""
        if progress.phase == "training":
            idle = self._clock.report()
            progress.idle_share, progress.idle_reasons = idle.idle_share, idle.reasons()

    def _allowance(self) -> int:
        group = self._config.group
        version = self._resources.policy.version
        return allowance(version, self._config.run.steps, group.per_step, group.max_staleness)

    def _pipeline(self) -> Pipeline:
        config = self._config
        return Pipeline(
            self._resources.pipeline_parts(),
            limits=config.rollout,
            sandbox=config.sandbox,
            scoring=config.scoring,
            reward=config.reward,
        )

    async def _rollouts(self) -> None:
        slots = self._config.rollout.in_flight
        await self._pipeline().run(self._source, self._deliver, slots=slots)

    async def _deliver(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        await self._recorder.rollout("train", item, trajectory, reward)
        result = self._book.finish(item, Member(trajectory=trajectory, reward=reward))
        if isinstance(result, Group):
            self._order.learn(result.task_id, spread=True)
            self._recorder.group(result, "ready")
            await self._queue.put(result)
        elif result is not None:
            if result == "no_spread":
                self._order.learn(item.task.id, spread=False)
            self._ledger.group(item.group_id, item.task.id, item.number, "dropped", reason=result)
        self._source.wake()

    async def _step(self) -> None:
        """One optimizer update: take, train, commit, publish."""
        learner, config = self._resources.learner, self._config
        step = learner.step
        with self._clock.span("waiting"):
            groups = await self._take(step)
        for group in groups:
            self._recorder.group(group, "taken", step=step)
        batch = train_groups(groups, config.group.estimator)
        with self._clock.span("training"):
            report = await self._resources.train(batch)
        if not report["applied"]:
            # The groups stay "taken": nothing was learned from them, and a resume has them ready.
            raise RunStopped(f"step {step + 1} was not applied: {report['reason']}")
        for group in groups:
            self._recorder.group(group, "committed", step=step)
        metrics = {
            **report,
            **self._metrics(groups, self._recorder.take_window(), step),
        }
        with self._clock.span("publishing"):
            await self._resources.publish()
        self._source.wake()
        self._note(step, metrics)
        await self._ledger.flush()
        if learner.step % config.checkpoint.every == 0 and learner.step < config.run.steps:
            with self._clock.span("checkpointing"):
                await self._resources.save()

    async def _take(self, step: int) -> list[Group]:
        group = self._config.group
        return await self._queue.take(
            group.per_step,
            version=step,
            max_staleness=group.max_staleness,
            on_stale=self._went_stale,
            timeout=group.wait_limit,
            culprit=lambda: f"{self._board.counts()}; longest: {self._board.oldest()}",
        )

    def _opened(self, item: WorkItem) -> None:
        self._ledger.group(item.group_id, item.task.id, item.number, "pending")

    def _went_stale(self, group: Group) -> None:
        self._book.went_stale()
        self._recorder.group(group, "dropped", reason="stale")
        self._source.wake()

    def _metrics(self, groups: Sequence[Group], window: Window, step: int) -> dict[str, object]:
        count = len(window.rewards)
        staleness = Counter(step - group.oldest_version for group in groups)
        sampled = self._resources.policy.statistics().sampled_tokens
        tokens, self._sampled_before = sampled - self._sampled_before, sampled
        return {
            # The last steps may train groups while no new rollout is due: then there is no rate.
            "reward": sum(window.rewards) / count if count else None,
            "pass_rate": window.resolved / count if count else None,
            "rollouts": sum(window.outcomes.values()),
            "outcomes": dict(window.outcomes),
            **_percentiles("rollout", window.seconds),
            **_percentiles("reward", window.reward_seconds),
            "sampled_tokens": tokens,
            "staleness": {str(k): v for k, v in sorted(staleness.items())},
            "dropped": dict(self._book.dropped),
        }

    def _note(self, step: int, metrics: dict[str, object]) -> None:
        idle = self._clock.report()
        self._ledger.step(step, metrics)
        self._ledger.meta(
            "idle",
            {
                "seconds": idle.seconds,
                "idle_share": idle.idle_share,
                "idle_reasons": idle.reasons(),
                "busy": idle.busy,
            },
        )
        self._progress.history.append({**metrics, "step": step})
        line = f"step {step + 1}/{self._config.run.steps}: "
        if metrics["reward"] is not None:
            line += f"reward {metrics['reward']:.3f}, pass rate {metrics['pass_rate']:.0%} of "
        line += f"{metrics['rollouts']} rollouts, learner idle {idle.idle_share:.0%}"
        self._progress.listener(line)

    def _advance(self, done: int, total: int) -> None:
        self._progress.advance(done, total)


def _percentiles(name: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """p50, p95 and p99 of `seconds`, by name; None without values."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {
        f"{name}_{key}": percentile(seconds, share) if seconds else None
        for key, share in shares.items()
    }
