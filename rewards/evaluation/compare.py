"""Two evaluations of the same tasks, task by task: is the difference more than chance?

The interval is the percentile bootstrap's over tasks (Efron, 1979), drawn in pairs, so that what
makes a task hard for both cancels out. The p-value is exact: the sign test on the tasks that came
out differently, which for one repeat is McNemar's (1947).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import EvaluationError

RESAMPLES = 10_000
_ZERO = ("unresolved_ids", "empty_patch_ids", "incomplete_ids", "unusable_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What a report says of each task."""

    name: str
    """Of the report; for people."""
    by_task: Mapping[str, float]
    """Share of the repeats that resolved the task, among those with a verdict."""
    unknown: tuple[str, ...] = ()
    """Ids without a verdict, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`other` against `base`, on the tasks for which both have a verdict."""

    base: str
    other: str
    tasks: int
    base_rate: float
    other_rate: float
    difference: float
    """other_rate - base_rate."""
    interval: tuple[float, float]
    """95% of the resampled differences lie in it."""
    p_value: float
    """Of the two-sided sign test: how often chance alone would split the changed tasks so."""
    gained: tuple[str, ...]
    """Ids that `other` resolves more often, sorted."""
    lost: tuple[str, ...]
    """Ids that it resolves less often, sorted."""
    only_base: tuple[str, ...]
    """Ids with a verdict in `base` alone, sorted; they are left out."""
    only_other: tuple[str, ...]
    """Likewise in `other`."""
    resamples: int
    seed: int


def compare(
    base: Scores, other: Scores, *, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Compare in pairs. Raises EvaluationError when no task has a verdict in both."""
    shared = sorted(base.by_task.keys() & other.by_task.keys())
    if not shared:
        raise EvaluationError(f"{base.name} and {other.name} have no task in common: nothing to do")
    differences = [other.by_task[each] - base.by_task[each] for each in shared]
    gained = tuple(each for each, by in zip(shared, differences, strict=True) if by > 0)
    lost = tuple(each for each, by in zip(shared, differences, strict=True) if by < 0)
    return Comparison(
        base=base.name,
        other=other.name,
        tasks=len(shared),
        base_rate=_mean([base.by_task[each] for each in shared]),
        other_rate=_mean([other.by_task[each] for each in shared]),
        difference=_mean(differences),
        interval=bootstrap(differences, resamples=resamples, seed=seed),
        p_value=sign_test(len(gained), len(lost)),
        gained=gained,
        lost=lost,
        only_base=tuple(sorted(base.by_task.keys() - other.by_task.keys())),
        only_other=tuple(sorted(other.by_task.keys() - base.by_task.keys())),
        resamples=resamples,
        seed=seed,
    )


def bootstrap(values: Sequence[float], *, resamples: int, seed: int) -> tuple[float, float]:
    """The 95% percentile interval of the mean of at least one value; the same for the same seed."""
    draw = random.Random(seed)
    means = sorted(_mean(draw.choices(values, k=len(values))) for _ in range(resamples))
    return means[int(0.025 * resamples)], means[math.ceil(0.975 * resamples) - 1]


def sign_test(gained: int, lost: int) -> float:
    """The exact two-sided p-value of that split under a fair coin; 1 when nothing changed."""
    changed = gained + lost
    tail = sum(math.comb(changed, count) for count in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / (1 << changed))


def read_scores(path: Path) -> Scores:
    """The scores of a report: ours, or one that SWE-bench wrote. Blocking.

    As in the resolved rate, a task with no prediction, or with one that is empty or can't be read,
    counts as not resolved, and another that ended in an error does not count. Raises
    EvaluationError.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise EvaluationError(f"{path}: {error.strerror}: give an evaluation's report") from error
    except (ValueError, RecursionError) as error:
        raise EvaluationError(f"{path}: not JSON: give an evaluation's report") from error
    return scores_of(document, str(path))


def scores_of(document: Any, name: str) -> Scores:
    """The scores of a report's JSON document; `name` is for people."""
    if not isinstance(document, dict) or not _is_ids(document.get("resolved_ids")):
        raise EvaluationError(f"{name}: no resolved_ids in it: give an evaluation's report")
    scores: dict[str, float] = {}
    for key in (*_ZERO, "resolved_ids"):
        ids = document.get(key, [])
        if not _is_ids(ids):
            raise EvaluationError(f"{name}: {key} is no list of ids: give an evaluation's report")
        scores.update(dict.fromkeys(ids, 1.0 if key == "resolved_ids" else 0.0))
    try:
        scores.update(_over_repeats(document.get("verdicts", {})))
        errors = set(document.get("error_ids", ())) - scores.keys()
    except (AttributeError, KeyError, TypeError) as error:
        raise EvaluationError(f"{name}: its verdicts are damaged: evaluate again") from error
    return Scores(name=name, by_task=scores, unknown=tuple(sorted(errors)))


def _over_repeats(verdicts: Any) -> Iterator[tuple[str, float]]:
    for task_id, verdict in verdicts.items():
        statuses = [each["status"] for each in verdict.get("repeats", ())]
        known = [status for status in statuses if status != "unknown"]
        if known:
            yield task_id, known.count("resolved") / len(known)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
