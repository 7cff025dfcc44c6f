"""A learner that learns nothing: it counts its updates, for simulations of time alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .batching import TrainSequence
from .step_report import StepReport

_COUNTS = ("flat_tokens", "tree_tokens", "padded_tokens", "rows", "compilations", "skipped")
_WORDS: Mapping[str, Any] = {"applied": True, "reason": "", "not_finite": False}


@dataclass(slots=True)
class CountingLearner:
    """Stands where a `Learner` does; every update is applied, and takes no time."""

    step: int = 0
    params: dict[str, Any] = field(default_factory=dict)

    def train(
        self, batch: Sequence[Sequence[TrainSequence]], *, should_stop: Callable[[], bool]
    ) -> StepReport:
        """One update more."""
        self.step += 1
        values: dict[str, Any] = dict.fromkeys(StepReport.__slots__, 0.0)
        values |= dict.fromkeys(_COUNTS, 0)
        values |= _WORDS
        values |= {"step": self.step, "sequences": sum(len(group) for group in batch)}
        values["loss_tokens"] = sum(int(each.loss_mask.sum()) for group in batch for each in group)
        return StepReport(**values)
