"""Held-out evaluations of a run: before, after, and beside the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .domain import Problem
from .evaluation import evaluate
from .parts import RunParts
from .pipeline import Pipeline
from .statistics import PassRate


class HeldOut:
    """Measures weights, keeps what comes of it, and ranks checkpoints by it."""

    def __init__(self, parts: RunParts, make_pipeline: Callable[[], Pipeline]) -> None:
        self._parts = parts
        self._make_pipeline = make_pipeline
        self._under_way = False

    async def measure(self, name: str, tasks: Sequence[Problem]) -> None:
        """Measure the present weights on `tasks` and keep the result under `name`."""
        version, progress = self._parts.resources.policy.version, self._parts.progress
        progress.enter(f"held-out evaluation {name} training (policy version {version})")
        result = await evaluate(
            name,
            tasks,
            self._make_pipeline(),
            self._parts.config.evaluation,
            slots=self._parts.config.rollout.in_flight,
            keep=self._parts.recorder.rollout,
            progress=self._parts.progress.advance,
        )
        self._parts.progress.measured(name, result)
        await self._measured(name, self._parts.resources.learner.step, result)
        await self._parts.ledger.flush()

    def recall(self, name: str, result: Mapping[str, Any]) -> None:
        """Show an evaluation that was made before the run was resumed."""
        low, high = result["interval"]
        self._parts.progress.evaluations[name] = PassRate(**{**result, "interval": (low, high)})

    def begins_at(self, step: int) -> bool:
        """Whether one begins beside the training: it is due, and the last one is over."""
        every, steps = self._parts.config.evaluation.every, self._parts.config.run.steps
        if every and step % every == 0 and step < steps and not self._under_way:
            self._under_way = True
            self._parts.resources.measuring(step)
            return True
        return False

    async def beside(self, step: int) -> None:
        """Measure the weights of `step` while the training goes on."""
        name = f"step-{step}"
        result = await evaluate(
            name,
            self._parts.resources.domain.heldout,
            self._make_pipeline(),
            self._parts.config.evaluation,
            slots=min(self._parts.config.group.size, self._parts.config.rollout.in_flight),
            keep=self._parts.recorder.rollout,
            progress=lambda done, total: None,
        )
        self._under_way = False
        self._parts.progress.listener(f"held out at step {step}: {result.pass_rate:.0%}")
        self._parts.progress.measured(name, result)
        await self._measured(name, step, result)

    async def _measured(self, name: str, step: int, result: PassRate) -> None:
        """Keep the result, rank its checkpoint, and compare it with the reward."""
        self._parts.ledger.meta(f"evaluation.{name}", asdict(result))
        found = self._parts.rewards.note_heldout(step, result.pass_rate, result.effective_samples)
        self._parts.alarms.rewards(found)
        await self._parts.resources.measured(step, result.pass_rate)
