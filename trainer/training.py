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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import anyio
import anyio.to_thread

from patchgym.agent import Trajectory
from patchgym.rewards import Reward

from .config import RunConfig
from .domain import Problem
from .errors import RunStopped
from .evaluation import evaluate
from .group import DropReason, Group, GroupBook, Member, WorkItem, allowance
from .group_queue import GroupQueue
from .idle import LearnerClock
from .ledger import Ledger
from .loop_lag import LoopLag
from .pipeline import Pipeline
from .progress import Progress
from .recorder import Recorder, Window
from .resources import Resources
from .resume import Restored
from .sources import TrainingSource
from .statistics import PassRate, percentile
from .task_sets import RevisitOrder
from .train_batch import train_groups
from .watchdog import Watchdog


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
        self._order = RevisitOrder(resources.domain.train, config.run.seed, config.tasks.revisit)
        self._order.replay(restored.visits)
        self._book = GroupBook(
            self._order,
            size=config.group.size,
            seed=config.run.seed,
            retries=config.rollout.retries,
            spare=config.group.spare,
            reopen=restored.reopen,
            first_number=restored.next_number,
            already=restored.committed + len(self._ready),
        )
        self._source = TrainingSource(
            self._book,
            self._allowance,
            self._opened,
            lambda: self._resources.policy.version,
        )
        self._pipeline = self._make_pipeline()
        self._watchdog = Watchdog(
            self._moved, self._describe, self._stalled, limit=config.run.stall_limit
        )
        self._sampled_before = 0
        self._identical = 0
        self._trained = restored.committed
        self._lag = LoopLag()
        self._slots_seen = (time.monotonic(), 0.0)

    async def evaluate(self, name: str, tasks: Sequence[Problem]) -> None:
        """Measure the present weights on `tasks` and keep the result under `name`."""
        version = self._resources.policy.version
        self._progress.enter(f"held-out evaluation {name} training (policy version {version})")
        result = await evaluate(
            name,
            tasks,
            self._make_pipeline(),
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
            group.start_soon(self._watchdog.run)
            group.start_soon(self._lag.run)
            if self._config.group.straggler_seconds:
                group.start_soon(self._stragglers)
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
        left = self._config.run.steps - self._resources.policy.version
        if group.asynchronous:
            under_way = -(-self._config.rollout.in_flight // group.size)
            return self._trained + min(left * group.per_step, self._queue.capacity + under_way)
        sure = allowance(left, group.per_step, group.max_staleness)
        return self._trained + sure + group.extra

    def _make_pipeline(self) -> Pipeline:
        return Pipeline(
            self._resources.pipeline_parts(),
            limits=self._config.rollout,
            scoring=self._config.scoring,
        )

    async def _rollouts(self) -> None:
        slots = self._config.rollout.in_flight
        await self._pipeline.run(self._source, self._deliver, slots=slots)

    def _noted(self, group: Group) -> None:
        """A group is whole."""
        self._order.learn(group.task_id, spread=True)
        self._recorder.group(group, "ready")

    def _dropped(self, task_id: str, group_id: str, number: int, reason: DropReason | None) -> None:
        if reason == "no_spread":
            self._order.learn(task_id, spread=False)
        self._ledger.group(group_id, task_id, number, "dropped", reason=reason or "")

    def _cancel_leftover(self) -> None:
        for rollout_id in self._book.leftover():
            self._pipeline.cancel(rollout_id)

    async def _stragglers(self) -> None:
        """Groups with a quorum don't wait for members that have been under way for too long."""
        group = self._config.group
        while True:
            await anyio.sleep(min(1.0, group.straggler_seconds / 4))
            seconds = {
                flight.item.rollout_id: flight.seconds for flight in self._pipeline.flights()
            }
            for waiting in self._book.waiting(group.quorum):
                # One that is being scored is no straggler: it will be there in a moment.
                if all(seconds.get(name, 0) > group.straggler_seconds for name in waiting.rollouts):
                    result = self._book.close_early(waiting.group_id)
                    self._ledger.event(
                        "straggled", group=waiting.group_id, rollouts=list(waiting.rollouts)
                    )
                    await self._settle(waiting.group_id, waiting.task_id, waiting.number, result)

    def _describe(self) -> str:
        """What waits for what, for the watchdog."""
        group = self._config.group
        return (
            f"learner: {self._clock.kind}, step {self._resources.learner.step + 1}; "
            f"queue: {len(self._queue)} of {self._queue.capacity} groups, {group.per_step} a step; "
            f"open groups: {self._book.state().open}; "
            f"policy: version {self._resources.policy.version}, {self._resources.policy.load()}; "
            f"stages: {self._board.counts()}\n{self._board.listing()}"
        )

    def _moved(self) -> object:
        """Changes whenever a rollout, the queue or the learner gets anywhere."""
        # While the learner works on its device nothing else need move.
        busy = time.monotonic() if self._clock.kind == "training" else 0.0
        return self._board.moves, len(self._queue), self._resources.learner.step, busy

    def _compare(self, step: int, report: Mapping[str, object], groups: Sequence[Group]) -> None:
        """Sampler and learner must agree on the tokens trained on, or they hold other weights."""
        mean, limit = report["mismatch_mean"], self._config.learner.mismatch_limit
        if isinstance(mean, float) and not mean <= limit:
            oldest = max(step - group.oldest_version for group in groups)
            cause = "they hold different weights"
            if oldest:
                cause += f", or the steps are too large for a staleness of {oldest}"
            words = f"step {step + 1}: sampler and learner differ by {mean:.3f} nats a token"
            self._alarm("mismatch", f"{words} (learner.mismatch_limit is {limit:g}): {cause}")

    def _alarm(self, kind: str, words: str) -> None:
        """Something that ought not to be: in the ledger, and told at once."""
        self._ledger.event("alarm", alarm=kind, words=words)
        self._progress.listener(f"alarm ({kind}): {words}")

    def _stalled(self, seconds: float, text: str) -> None:
        self._ledger.event("stalled", seconds=seconds, report=text)
        self._progress.listener(f"nothing has moved for {seconds:.0f} s: {text.splitlines()[0]}")

    async def _deliver(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        await self._recorder.rollout("train", item, trajectory, reward)
        result = self._book.finish(item, Member(trajectory=trajectory, reward=reward))
        await self._settle(item.group_id, item.task.id, item.number, result)

    async def _settle(
        self, group_id: str, task_id: str, number: int, result: Group | DropReason | None
    ) -> None:
        """A group may have become whole: queue or drop it, and let go of what it left over."""
        self._cancel_leftover()
        if self._book.identical > self._identical:
            self._identical = self._book.identical
            self._alarm("identical", f"all rollouts of {group_id} sampled the very same ids")
        if isinstance(result, Group):
            self._noted(result)
            await self._queue.put(result)
        elif result is not None:
            self._dropped(task_id, group_id, number, result)
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
        self._trained += len(groups)
        self._compare(step, report, groups)
        metrics = {
            **report,
            **self._metrics(groups, self._recorder.take_window(), step),
        }
        with self._clock.span("publishing"):
            await self._resources.publish()
        self._drop_late()
        self._note(step, metrics)
        await self._ledger.flush()
        if learner.step % config.checkpoint.every == 0 and learner.step < config.run.steps:
            with self._clock.span("checkpointing"):
                await self._resources.save()

    async def _take(self, step: int) -> list[Group]:
        group = self._config.group
        await self._queue.enough(
            group.per_step,
            oldest=step - group.max_staleness,
            on_stale=self._went_stale,
            timeout=group.wait_limit,
            culprit=lambda: f"{self._board.counts()}; longest: {self._board.oldest()}",
        )
        last_chance = step + 1 - group.max_staleness
        if group.quorum:
            self._salvage(last_chance)
        return self._queue.take(group.per_step, last_chance=last_chance)

    def _salvage(self, last_chance: int) -> None:
        """Groups that would be too stale when they are whole make do with their quorum now."""
        for waiting in self._book.waiting(self._config.group.quorum, older_than=last_chance):
            result = self._book.close_early(waiting.group_id)
            if isinstance(result, Group):
                self._noted(result)
                self._queue.put_now(result)
            else:
                self._dropped(waiting.task_id, waiting.group_id, waiting.number, result)
        self._cancel_leftover()

    def _opened(self, item: WorkItem) -> None:
        self._ledger.group(item.group_id, item.task.id, item.number, "pending")
        self._resources.domain.expect(self._order.upcoming(self._config.group.per_step))

    def _went_stale(self, group: Group) -> None:
        self._book.went_stale()
        self._order.again(group.task_id)
        self._recorder.group(group, "dropped", reason="stale")
        self._source.wake()

    def _drop_late(self) -> None:
        """With new weights out: what would be too stale by the next step need not go on."""
        oldest = self._resources.learner.step - self._config.group.max_staleness
        self._queue.evict(oldest, self._went_stale)
        for late in self._book.drop_older(oldest):
            self._order.again(late.task_id)
            self._ledger.group(late.group_id, late.task_id, late.number, "dropped", reason="stale")
        self._cancel_leftover()
        self._source.wake()

    def _metrics(self, groups: Sequence[Group], window: Window, step: int) -> dict[str, object]:
        count = len(window.rewards)
        staleness = Counter(step - group.oldest_version for group in groups)
        sampled = self._resources.policy.statistics().sampled_tokens
        tokens, self._sampled_before = sampled - self._sampled_before, sampled
        lag = self._lag.report()
        return {
            # The last steps may train groups while no new rollout is due: then there is no rate.
            "reward": sum(window.rewards) / count if count else None,
            "pass_rate": window.resolved / count if count else None,
            "rollouts": sum(window.outcomes.values()),
            "outcomes": dict(window.outcomes),
            **_percentiles("rollout", window.seconds),
            **_percentiles("reward", window.reward_seconds),
            "sampled_tokens": tokens,
            "slot_use": self._slot_use(),
            "loop_blocked": lag.blocked_share,
            "loop_lag_p99": lag.p99,
            "staleness": {str(k): v for k, v in sorted(staleness.items())},
            "dropped": dict(self._book.dropped),
        }

    def _slot_use(self) -> float:
        """Share of the slots' time with a rollout in them, since the last call; 0 to 1."""
        now, used = time.monotonic(), self._pipeline.slot_seconds
        (since, before), self._slots_seen = self._slots_seen, (now, used)
        return (used - before) / max(now - since, 1e-9) / self._config.rollout.in_flight

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
