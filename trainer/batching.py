"""Lays the sequences of groups out in rows of fixed lengths, every shared prefix stored once.

What the tree shares, and why rows are exact: `tree`. Here sequences become its branches, with their
weights in the average, and of the row lengths the plan with the least work is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .aggregation import aggregate
from .loss_config import Aggregation
from .tree import Branch, PrefixTree, TreeRow, first_fit, prefix_tree, split, tree_row

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

ATTENTION_TOKENS = 3000
"""A row of this many tokens costs as much in attention as in everything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSequence:
    """One token sequence to learn from, with what the sampler said about it."""

    tokens: Ints
    """Ids [n]: exactly those that the sampler saw and gave."""
    loss_mask: npt.NDArray[np.bool_]
    """[n]: true on sampled tokens that count in the loss; never on the first."""
    sampler_logprobs: Floats
    """[n]: natural log of the probability that each masked token was drawn with; 0 elsewhere."""
    advantage: float
    """Advantage relative to the group; for `nll`, the weight of its tokens."""
    first: bool = True
    """False for the later segments of a trajectory: it counts as one sequence, however many."""

    def __post_init__(self) -> None:
        """Raise ValueError for arrays that differ in length or can't be trained on."""
        size = len(self.tokens)
        if size == 0 or len(self.loss_mask) != size or len(self.sampler_logprobs) != size:
            raise ValueError(
                f"tokens, loss_mask and sampler_logprobs must have one length, not "
                f"{size}, {len(self.loss_mask)}, {len(self.sampler_logprobs)}"
            )
        if self.loss_mask[0]:
            raise ValueError("the first token can't be trained on: nothing predicts it")
        if not np.isfinite(self.sampler_logprobs[self.loss_mask]).all():
            raise ValueError("sampler_logprobs must be finite where loss_mask is true")
        if not np.isfinite(self.advantage):
            raise ValueError(f"the advantage must be finite, not {self.advantage}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows, and how they came out."""

    rows: tuple[TreeRow, ...]
    """In the order in which they are trained, which is fixed by the input."""
    sequences: int
    """Trajectories handed over, trained or not."""
    divisor: int
    """What the weighted sum is divided by: trajectories, tokens or prompts, by the aggregation."""
    flat_tokens: int
    """Tokens of all trained sequences laid out one by one."""
    tree_tokens: int
    """Tokens in the rows, prefixes shared, without padding."""
    padded_tokens: int
    """Tokens in the rows with padding: what is computed."""
    loss_tokens: int
    """Masked tokens of all sequences, a shared one once a sequence."""


def pack(
    groups: Sequence[Sequence[TrainSequence]],
    *,
    row_tokens: Sequence[int],
    aggregation: Aggregation = "constant",
    share_sampled: bool = True,
    keep_all: bool = False,
) -> Batch:
    """Lay `groups` out in rows whose lengths are among `row_tokens` (ascending).

    Sequences with nothing to learn (no masked token, or, without `keep_all`, an advantage of 0)
    take no space, but count in the average. Without `share_sampled`, as losses over whole sequences
    need, what the loss reads of a token is each sequence's own. Raises ValueError when a sequence
    is longer than the longest row: the caller bounds its contexts, and a silently missing sequence
    would change the gradient.
    """
    kept, divisor = _branches(groups, aggregation, keep_all)
    longest = row_tokens[-1]
    for index, group in enumerate(kept):
        for branch in group:
            if len(branch.tokens) > longest:
                raise ValueError(
                    f"a sequence of group {index} has {len(branch.tokens)} tokens, the longest "
                    f"row {longest}: raise learner.row_tokens or lower the rollout's token limit"
                )
    trees = _Trees(merge=share_sampled)
    plans = [_plan(trees, kept, limit, row_tokens) for limit in row_tokens]
    rows = min((plan for plan in plans if plan is not None), key=_cost, default=())
    return _batch(groups, kept, rows, divisor)


def flat_rows(
    groups: Sequence[Sequence[TrainSequence]],
    *,
    length: int,
    aggregation: Aggregation = "constant",
    keep_all: bool = False,
) -> Batch:
    """One padded row of `length` a sequence: the reference that `pack` must equal."""
    kept, divisor = _branches(groups, aggregation, keep_all)
    rows = tuple(_row([prefix_tree([branch])], length) for group in kept for branch in group)
    return _batch(groups, kept, rows, divisor)


def _branches(
    groups: Sequence[Sequence[TrainSequence]], aggregation: Aggregation, keep_all: bool
) -> tuple[list[list[Branch]], int]:
    """What takes room, by group, and what its weighted sum is divided by."""
    weights, divisor = aggregate(
        [[int(s.loss_mask.sum()) for s in group] for group in groups],
        [[s.first for s in group] for group in groups],
        aggregation,
    )
    kept: list[list[Branch]] = []
    number = 0
    for group, of_group in zip(groups, weights, strict=True):
        kept.append([])
        for sequence, weight in zip(group, of_group, strict=True):
            number += 1
            if sequence.loss_mask.any() and (keep_all or sequence.advantage != 0):
                kept[-1].append(_branch(sequence, weight, number))
    return kept, divisor


def _branch(sequence: TrainSequence, weight: float, number: int) -> Branch:
    return Branch(
        tokens=sequence.tokens,
        masked=sequence.loss_mask,
        logprobs=sequence.sampler_logprobs,
        advantage=sequence.advantage * weight,
        weight=weight,
        owner=number,
    )


def _batch(
    groups: Sequence[Sequence[TrainSequence]],
    kept: list[list[Branch]],
    rows: tuple[TreeRow, ...],
    divisor: int,
) -> Batch:
    return Batch(
        rows=rows,
        sequences=sum(s.first for group in groups for s in group),
        divisor=divisor,
        flat_tokens=sum(len(branch.tokens) for group in kept for branch in group),
        tree_tokens=sum(row.used for row in rows),
        padded_tokens=sum(row.length for row in rows),
        loss_tokens=sum(int(branch.masked.sum()) for group in kept for branch in group),
    )


def _cost(rows: tuple[TreeRow, ...]) -> float:
    """Relative time of training `rows`: linear in tokens, plus attention's square."""
    return sum(row.length * (1 + row.length / ATTENTION_TOKENS) for row in rows)


class _Trees:
    """The trees of parts of groups, each made once however many row lengths are tried."""

    def __init__(self, *, merge: bool) -> None:
        self._merge = merge
        self._made: dict[tuple[int, ...], PrefixTree] = {}

    def of(self, group: Sequence[Branch], limit: int) -> list[PrefixTree]:
        """Trees of at most `limit` tokens and reads that together hold `group`."""
        parts = split(group, limit, merge=self._merge)
        return [self._tree(part) for part in parts]

    def _tree(self, part: Sequence[Branch]) -> PrefixTree:
        key = tuple(branch.owner for branch in part)
        if key not in self._made:
            self._made[key] = prefix_tree(part, merge=self._merge)
        return self._made[key]


def _plan(
    trees: _Trees, groups: list[list[Branch]], limit: int, row_tokens: Sequence[int]
) -> tuple[TreeRow, ...] | None:
    """Rows of at most `limit` tokens, or None when a sequence does not fit in one."""
    if any(len(branch.tokens) > limit for group in groups for branch in group):
        return None
    parts = [tree for group in groups for tree in trees.of(group, limit)]
    return tuple(_row(held, _fit(held, row_tokens)) for held in first_fit(parts, limit))


def _fit(trees: Sequence[PrefixTree], row_tokens: Sequence[int]) -> int:
    """The shortest row that holds `trees` and their reads."""
    tokens = sum(len(tree.tokens) for tree in trees)
    reads = sum(len(tree.reads.targets) for tree in trees)
    return next(length for length in row_tokens if length >= max(tokens, reads))


def _row(trees: Sequence[PrefixTree], length: int) -> TreeRow:
    """`trees` side by side in a row of `length`, their sequences numbered from 0."""
    row = tree_row(trees, length)
    numbers = np.unique(row.reads.owners, return_inverse=True)[1].astype(np.int32)
    return replace(row, reads=replace(row.reads, owners=numbers))
