"""From groups to what the learner consumes: advantages on exact token sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .advantages import Estimator, group_advantages
from .batching import TrainSequence
from .group import Group


def train_groups(groups: Sequence[Group], estimator: Estimator) -> list[list[TrainSequence]]:
    """For each group, the members that enter the loss with an advantage other than 0."""
    return [sequences for group in groups if (sequences := _sequences(group, estimator))]


def _sequences(group: Group, estimator: Estimator) -> list[TrainSequence]:
    counted = [member for member in group.members if member.in_baseline]
    values = group_advantages(group.rewards(), estimator=estimator)
    return [
        TrainSequence(
            tokens=np.asarray(segment.tokens, dtype=np.int32),
            loss_mask=np.asarray(segment.loss_mask, dtype=bool),
            sampler_logprobs=np.asarray(segment.sampler_logprobs, dtype=np.float32),
            advantage=float(advantage),
            first=index == 0,
        )
        for member, advantage in zip(counted, values, strict=True)
        if member.in_loss and advantage != 0.0
        for index, segment in enumerate(member.trajectory.segments())
    ]
