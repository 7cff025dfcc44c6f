"""Rejection sampling: which rollouts of a run are imitated.

Rejection-sampling fine-tuning (Yuan et al. 2023, arXiv:2308.01825) keeps what was right, each
distinct answer once. Deviations: what is distinct is the patch, not the reasoning; the answers of a
task are capped, so that easy tasks, which are solved often, don't crowd out the others; and `best`
takes the highest rewards where nothing was resolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from patchgym.agent import rule_for
from patchgym.agent.stop_reason import StopReason

from .config import DataSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stored rollout, as far as the choice needs it."""

    rollout_id: str
    task_id: str
    stop_reason: StopReason
    reward: float | None
    """None when it is not known."""
    resolved: bool
    sampled_tokens: int


def choose(
    candidates: Sequence[Candidate], data: DataSection, patch_of: Callable[[Candidate], bytes]
) -> list[Candidate]:
    """What `data` keeps, by task and then best first.

    Of one task the higher reward comes first, then the shorter rollout, then the id. Unless all are
    kept, one whose patch was taken already is passed over. `patch_of` is asked only about what
    would be taken.
    """
    by_task: dict[str, list[Candidate]] = {}
    for each in sorted(candidates, key=_rank):
        if _qualifies(each, data):
            by_task.setdefault(each.task_id, []).append(each)
    return [
        chosen for task in sorted(by_task) for chosen in _of_task(by_task[task], data, patch_of)
    ]


def _of_task(
    ranked: Sequence[Candidate], data: DataSection, patch_of: Callable[[Candidate], bytes]
) -> list[Candidate]:
    taken: list[Candidate] = []
    patches: set[bytes] = set()
    for each in ranked:
        if data.per_task and len(taken) == data.per_task:
            break
        patch = patch_of(each)
        if data.keep != "all" and patch in patches:
            continue
        patches.add(patch)
        taken.append(each)
    return taken


def _qualifies(each: Candidate, data: DataSection) -> bool:
    if not rule_for(each.stop_reason).in_loss:
        return False  # cut off, or failed by no doing of the policy
    if data.keep == "resolved" and not each.resolved:
        return False
    if data.keep == "best" and each.reward is None:
        return False
    return data.min_reward is None or (each.reward is not None and each.reward >= data.min_reward)


def _rank(each: Candidate) -> tuple[float, int, str]:
    reward = -math.inf if each.reward is None else each.reward
    return -reward, each.sampled_tokens, each.rollout_id
