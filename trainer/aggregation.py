"""How tokens are averaged: weights from real counts, before anything is laid out in rows.

A loss is a weighted sum over all tokens of a batch over one number. Both come from the sequences as
they were handed over, so that packing, rows and accumulation can't change the result.

With N trajectories, n_i their loss tokens, and groups g of trajectories of one prompt:

    constant        sum over tokens / (N x length)             Dr. GRPO, arXiv:2503.20783
    token_mean      sum over tokens / sum of n_i               DAPO, arXiv:2503.14476
    sequence_mean   sum of (token sum / n_i) / N               GRPO, arXiv:2402.03300
    prompt_mean     sum of (token sum of g / n_g) / groups     ScaleRL, arXiv:2510.13786

Everything handed over counts, also what an advantage of 0 takes out of the sum. A trajectory whose
agent rewrote its history has several sequences; its n_i is that of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from .loss_config import Aggregation


def aggregate(
    tokens: Sequence[Sequence[int]], first: Sequence[Sequence[bool]], aggregation: Aggregation
) -> tuple[list[list[float]], int]:
    """Weight of each token of every sequence, and what the weighted sum is divided by.

    `tokens` are the loss tokens of each sequence of each group, `first` says whether a sequence is
    its trajectory's first; those after it that are not belong to it. `constant` leaves the length
    out of the divisor: the learner knows it.
    """
    ones = [[1.0] * len(group) for group in tokens]
    if aggregation == "token_mean":
        return ones, sum(map(sum, tokens))
    if aggregation == "prompt_mean":
        totals = [sum(group) for group in tokens]
        weights = [
            [_inverse(total)] * len(group) for group, total in zip(tokens, totals, strict=True)
        ]
        return weights, sum(total > 0 for total in totals)
    trajectories = sum(map(sum, first))
    if aggregation == "constant":
        return ones, trajectories
    pairs = zip(tokens, first, strict=True)
    return [_by_trajectory(counts, starts) for counts, starts in pairs], trajectories


def _by_trajectory(tokens: Sequence[int], first: Sequence[bool]) -> list[float]:
    """One over the tokens of the whole trajectory, for each sequence of a group."""
    places: list[int] = []
    totals: list[int] = []
    for count, begins in zip(tokens, first, strict=True):
        if begins or not totals:
            totals.append(0)
        totals[-1] += count
        places.append(len(totals) - 1)
    return [_inverse(totals[place]) for place in places]


def _inverse(count: int) -> float:
    return 1.0 / count if count else 0.0
