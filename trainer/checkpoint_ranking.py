"""Which checkpoint is the best one, and which ones stay: pure functions of what was measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

Measure: TypeAlias = Literal["heldout", "reward"]
"""`heldout` is the pass rate on held-out tasks, `reward` the mean reward of a step's rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a checkpoint is ranked by."""

    measure: Measure
    """What was measured."""
    value: float
    """More is better."""


def best_step(values: Mapping[int, Value]) -> int | None:
    """The step with the best of `values`; None when there is none.

    A held-out pass rate outranks every mean reward: the two can't be compared, and the first one is
    what training is for. Of equal values the earlier step is the best; a value that is not finite
    never is.
    """
    known = {step: one for step, one in values.items() if math.isfinite(one.value)}
    if any(one.measure == "heldout" for one in known.values()):
        known = {step: one for step, one in known.items() if one.measure == "heldout"}
    return min(known, key=lambda step: (-known[step].value, step), default=None)


def kept_steps(
    steps: Collection[int],
    values: Mapping[int, Value],
    *,
    last: int,
    keep_best: bool,
    held: Collection[int] = (),
) -> set[int]:
    """Those of `steps` that stay: the `last` newest, the best, and those in `held`."""
    kept = set(sorted(steps)[-last:]) | (set(steps) & set(held))
    best = best_step({step: one for step, one in values.items() if step in steps})
    if keep_best and best is not None:
        kept.add(best)
    return kept


def value_from(record: object) -> Value | None:
    """The value in a JSON `record` as `dataclasses.asdict` makes it; None for anything else."""
    if not isinstance(record, dict):
        return None
    fields: dict[str, Any] = record
    measure, value = fields.get("measure"), fields.get("value")
    if measure not in get_args(Measure) or not isinstance(value, float):
        return None
    return Value(measure=cast(Measure, measure), value=value)
