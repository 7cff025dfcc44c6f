"""From groups to what the learner consumes: advantages on exact token sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from patchgym.rewards.config import Normalize

from .advantages import (
    Estimator,
    component_advantages,
    group_advantages,
    overlong_penalty,
    scaled_over_batch,
)
from .batching import TrainSequence
from .group import Group, Member
from .loss_config import LossConfig

Floats = npt.NDArray[np.float64]


def train_groups(
    groups: Sequence[Group],
    estimator: Estimator,
    normalize: Normalize = "total",
    config: LossConfig | None = None,
) -> list[list[TrainSequence]]:
    """For each group with an advantage other than 0, the members that enter the loss.

    `normalize` says what is compared: the totals, by `estimator`, or each component by itself;
    `config` whether a member's length costs something. Members whose advantage is 0 come along:
    averages are over all of a group.
    """
    if normalize == "components":
        advantages = scaled_over_batch([by_component(group, config) for group in groups])
    else:
        advantages = [_by_total(group, config, estimator) for group in groups]
    found = zip(groups, advantages, strict=True)
    return [
        sequences
        for group, values in found
        if np.any(values != 0.0) and (sequences := _sequences(group, values))
    ]


def by_component(group: Group, config: LossConfig | None = None) -> Floats:
    """Advantages of the members that count, each component standardized by itself, `[G]`."""
    counted = _counted(group)
    weights = {score.name: score.weight for member in counted for score in member.reward.scores}
    names = [name for name, weight in weights.items() if weight]
    values = [[_value(member, name) for member in counted] for name in names]
    signed = [weights[name] for name in names]
    if config is not None and config.overlong == "soft":
        values.append(_overlong(group, config).tolist())
        signed.append(config.overlong_penalty)
    return component_advantages(np.array(values), np.array(signed))


def _by_total(group: Group, config: LossConfig | None, estimator: Estimator) -> Floats:
    rewards = np.asarray(group.rewards(), np.float64)
    if config is not None and config.overlong == "soft":
        rewards += config.overlong_penalty * _overlong(group, config)
    return group_advantages(rewards.tolist(), estimator=estimator)


def _overlong(group: Group, config: LossConfig) -> Floats:
    """What the length of each member that counts costs, 0 to -1, `[G]`."""
    lengths = np.array([m.trajectory.sampled_tokens for m in _counted(group)], np.float64)
    penalty: Floats = overlong_penalty(
        lengths, limit=config.overlong_tokens, buffer=config.overlong_buffer
    )
    return penalty


def _counted(group: Group) -> list[Member]:
    return [member for member in group.members if member.in_baseline]


def _value(member: Member, name: str) -> float:
    """NaN when it is not known, 0 when its gate was not reached."""
    score = member.reward.score(name)
    if score is None or score.status == "unknown":
        return float("nan")
    return score.value or 0.0


def _sequences(group: Group, advantages: Floats) -> list[TrainSequence]:
    return [
        TrainSequence(
            tokens=np.asarray(segment.tokens, dtype=np.int32),
            loss_mask=np.asarray(segment.loss_mask, dtype=bool),
            sampler_logprobs=np.asarray(segment.sampler_logprobs, dtype=np.float32),
            advantage=float(advantage),
            first=index == 0,
        )
        for member, advantage in zip(_counted(group), advantages, strict=True)
        if member.in_loss
        for index, segment in enumerate(member.trajectory.segments())
    ]
