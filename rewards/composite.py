"""The weighted total: tests first, minus a little for size.

The size penalty is gated by the tests: among patches that fix nothing, shorter is not better,
and a penalty there would push the policy towards answering nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from patchgym.datasets.task import Task

from .base import Reward, Score, Verdict
from .patch_size import PatchSizeComponent
from .tests import TestsComponent


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardConfig:
    """Weights of the reward's components."""

    tests: float = 1.0
    """Reward of a resolved task."""
    patch_size: float = 0.05
    """The most that a needlessly large diff can cost."""

    def __post_init__(self) -> None:
        for name in ("tests", "patch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"reward.{name} is {getattr(self, name)}: it must be >= 0")


def compose(
    task: Task,
    diff: bytes,
    verdict: Verdict,
    config: RewardConfig,
    *,
    seconds: float = 0.0,
    shared: bool = False,
) -> Reward:
    """The reward of `diff`; its total is None when the verdict is unknown."""
    if verdict.status == "unknown":
        return Reward(total=None, scores=(), verdict=verdict, seconds=seconds, shared=shared)
    tests, evidence = TestsComponent().score(task, diff, verdict)
    scores = [Score(name="tests", value=tests, weight=config.tests, evidence=evidence)]
    if tests > 0:
        size, evidence = PatchSizeComponent().score(task, diff, verdict)
        weight = -config.patch_size
        scores.append(Score(name="patch_size", value=size, weight=weight, evidence=evidence))
    total = sum(score.value * score.weight for score in scores)
    return Reward(
        total=total, scores=tuple(scores), verdict=verdict, seconds=seconds, shared=shared
    )
