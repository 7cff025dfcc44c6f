"""The supervised loop: an update with each portion, a measurement before the first epoch and after
each.

    for every step:  measure, where an epoch begins -> update -> record -> checkpoint, when due

What a step does depends on the weights, the data and its number alone. So a run that goes on from a
checkpoint makes the same steps, to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from patchgym.trainer.errors import RunStopped

from .config import SftConfig
from .dataset import Dataset, Example, Plan, to_groups

if TYPE_CHECKING:
    from patchgym.trainer.learner import Learner
    from patchgym.trainer.step_report import StepReport

    from .measure import Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """One update."""

    step: int
    """From 0."""
    metrics: dict[str, Any]
    """`loss` (nats a token, before the update), `learning_rate`, `grad_norm`, tokens, seconds."""


class SftLoop:
    """Trains one learner on one dataset, from the learner's present step to the plan's last.

    Calls block; make them from one thread at a time.
    """

    def __init__(
        self,
        config: SftConfig,
        learner: Learner,
        dataset: Dataset,
        plan: Plan,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`should_stop` is asked between rows: once it says yes, StepInterrupted is raised."""
        self._config, self._learner = config, learner
        self._dataset, self._plan = dataset, plan
        self._should_stop = should_stop

    @property
    def done(self) -> bool:
        """No step is left."""
        return self._learner.step >= self._plan.steps

    def measure(self) -> Measured | None:
        """The held-out share under the present weights; None when nothing is held out.

        RunStopped when its loss is not finite.
        """
        from patchgym.trainer.learner_execution import execution_of

        from .measure import measure

        if not self._dataset.heldout:
            return None
        result = measure(
            self._learner,
            self._dataset.heldout,
            execution=execution_of(self._config.learner),
            should_stop=self._should_stop,
        )
        if not math.isfinite(result.loss):
            raise RunStopped(
                f"the held-out loss at step {self._learner.step} is {result.loss}: the weights are "
                f"not finite, or overflow; look at the model {self._config.model.path}"
            )
        return result

    def step(self) -> StepDone:
        """Make the next update; RunStopped when its loss or its gradient is not finite."""
        from .decay import part_of_step, rate_share

        started = time.perf_counter()
        learner, step = self._learner, self._learner.step
        members = [self._dataset.train[place] for place in self._plan.members(step)]
        before = learner.state.params
        report = learner.train(to_groups(members), should_stop=self._should_stop)
        if not report.applied:
            raise RunStopped(_refusal(step, report, members))
        share = rate_share(
            step,
            steps=self._plan.steps,
            warmup=self._config.learner.warmup_steps,
            final=self._config.train.final_rate,
        )
        state = learner.state
        if share < 1:
            learner.restore(state._replace(params=part_of_step(before, state.params, share)))
        seconds = time.perf_counter() - started
        metrics = _metrics(report, members, share, seconds)
        return StepDone(step=step, metrics=metrics)


def _metrics(
    report: StepReport, members: Sequence[Example], share: float, seconds: float
) -> dict[str, Any]:
    return {
        "loss": report.loss,
        "learning_rate": report.learning_rate * share,
        "grad_norm": report.grad_norm,
        "entropy": report.entropy,
        "conversations": len(members),
        "tokens": report.flat_tokens,
        "tree_tokens": report.tree_tokens,
        "padded_tokens": report.padded_tokens,
        "learned": report.loss_tokens,
        "rows": report.rows,
        "compilations": report.compilations,
        "seconds": seconds,
    }


def _refusal(step: int, report: StepReport, members: Sequence[Example]) -> str:
    names = ", ".join(each.source for each in members[:4])
    more = f" and {len(members) - 4} more" if len(members) > 4 else ""
    return (
        f"step {step + 1} was not applied: {report.reason}; its conversations are {names}{more}. "
        "The weights are those of the step before: lower learner.learning_rate, or look at them"
    )
