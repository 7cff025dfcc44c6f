"""Prefix trees in which a token is stored once, whatever the loss reads of it.

What a token costs is its place in the row: attention, feed-forward, one hidden state. That state
depends on the ids before it alone. So the tree forks where *ids* differ, and nowhere else; what the
loss reads is a list beside the tokens, with one read for each token and stored log-probability:

            prompt         a1 a2 a3    b1 b2          prompt + a (twice) and prompt + b
    index   0 1 2 3        4  5  6     7  8
    ends    9 9 9 9        7  7  7     9  9           q sees k when k <= q < ends[k]
    parent  - 0 1 2        3  4  5     3  7

    reads   target   a1 a1' a2 a3 b1 b2               a1 was drawn twice, at two log-probabilities
            reader   3  3   4  5  3  7                the target's parent: its state predicts it

A read holds the sums of the positive and of the negative advantages of the sequences that share it:
the clipped objective of one ratio with both sums is the sum of the members' objectives. A sequence
that shows a token as context only (the later segment of a rewritten history) shares its place, and
reads nothing of it.

Loss and gradient equal those of one row a sequence, up to float32 sums in another order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One sequence, a path from the root of its group's tree."""

    tokens: Ints
    """[n] ids, none negative."""
    masked: npt.NDArray[np.bool_]
    """[n] true on the tokens that the loss reads; never on the first."""
    logprobs: Floats
    """[n] the sampler's, nats, where masked."""
    advantage: float
    """Of each of its tokens, weight included."""
    weight: float = 1.0
    """Of each of its tokens in the average."""
    owner: int = 0
    """Names the sequence within its batch."""

    def __post_init__(self) -> None:
        """Raise ValueError for arrays that differ in length or can't be laid out."""
        sizes = len(self.tokens), len(self.masked), len(self.logprobs)
        if len(set(sizes)) > 1 or sizes[0] == 0:
            raise ValueError(f"tokens, masked and logprobs must have one length, not {sizes}")
        if self.masked[0]:
            raise ValueError("the first token can't be read: nothing predicts it")
        if np.min(self.tokens) < 0:
            raise ValueError(f"token ids can't be negative: {int(np.min(self.tokens))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What the loss reads, R entries in the order of their targets."""

    readers: Ints
    """[R] index of the token whose hidden state predicts the target."""
    targets: Ints
    """[R] ids."""
    sampler_logprobs: Floats
    """[R] nats."""
    positive: Floats
    """[R] sum of the positive advantages of the sequences that share the read."""
    negative: Floats
    """[R] sum of the negative ones."""
    weights: Floats
    """[R] sum of their weights."""
    sharing: Floats
    """[R] how many they are; 0 in the padding of a row."""
    owners: Ints
    """[R] the sequence that reads; of several, the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixTree:
    """A group's tokens in depth-first order."""

    tokens: Ints
    """[n] ids."""
    positions: Ints
    """[n] depth, which is the position in the sequence."""
    ends: Ints
    """[n] index after the last token of the subtree."""
    reads: Reads
    """What the loss reads."""


def prefix_tree(branches: Sequence[Branch], *, merge: bool = True) -> PrefixTree:
    """The tree of `branches`.

    With `merge`, reads of one token at one log-probability become one. Losses over whole sequences
    need every sequence's own: without it, only the tokens are shared.
    Raises ValueError without branches.
    """
    if not branches:
        raise ValueError("a tree needs at least one branch")
    ordered = depth_first(branches)
    size = sum(len(b.tokens) for b in ordered)
    tokens, positions, ends, parents = (np.zeros(size, np.int32) for _ in range(4))
    path: Ints = np.zeros(0, np.int32)  # from the root to the last token of the branch before
    used, paths = 0, []
    for before, branch in zip([None, *ordered], ordered, strict=False):
        shared = 0 if before is None else common_prefix(before.tokens, branch.tokens)
        ends[path[shared:]] = used
        stop = used + len(branch.tokens) - shared
        path = np.concatenate([path[:shared], np.arange(used, stop, dtype=np.int32)])
        tokens[used:stop] = branch.tokens[shared:]
        positions[used:stop] = np.arange(shared, len(path))
        parents[path[1:]] = path[:-1]
        used = stop
        paths.append(path)
    ends[path] = used
    return PrefixTree(
        tokens=tokens[:used],
        positions=positions[:used],
        ends=ends[:used],
        reads=_reads(ordered, paths, parents, tokens, merge),
    )


def depth_first(branches: Sequence[Branch]) -> list[Branch]:
    """`branches` in the order of their ids, so that those with a common prefix are neighbours."""
    # Of big-endian numbers, the order of the bytes is the order of the numbers.
    return sorted(branches, key=lambda branch: branch.tokens.astype(">u4").tobytes())


def common_prefix(first: Ints, second: Ints) -> int:
    """Length of the common prefix."""
    shorter = min(len(first), len(second))
    differs = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(differs[0]) if len(differs) else shorter


def logprob_bits(branch: Branch) -> npt.NDArray[np.uint64]:
    """[n] the bits of the log-probabilities; those of -0.0 are those of 0.0."""
    values = branch.logprobs.astype(np.float32) + np.float32(0)
    return values.view(np.uint32).astype(np.uint64)


def _reads(
    branches: Sequence[Branch], paths: list[Ints], parents: Ints, tokens: Ints, merge: bool
) -> Reads:
    """The reads of `branches`, whose tokens stand at `paths`."""
    masks = [branch.masked for branch in branches]
    counts = [int(mask.sum()) for mask in masks]
    nodes = np.concatenate([path[mask] for path, mask in zip(paths, masks, strict=True)])
    if merge:
        marks = np.concatenate(
            [logprob_bits(b)[mask] for b, mask in zip(branches, masks, strict=True)]
        )
    else:
        marks = np.repeat(np.arange(len(branches), dtype=np.uint64), counts)
    keys = (nodes.astype(np.uint64) << np.uint64(32)) | marks
    _, first, members = np.unique(keys, return_index=True, return_inverse=True)
    advantages = np.repeat([branch.advantage for branch in branches], counts)

    def summed(values: npt.NDArray[np.float64]) -> Floats:
        return np.bincount(members, values, len(first)).astype(np.float32)

    logprobs = np.concatenate([b.logprobs[mask] for b, mask in zip(branches, masks, strict=True)])
    return Reads(
        readers=parents[nodes[first]],
        targets=tokens[nodes[first]],
        sampler_logprobs=logprobs[first].astype(np.float32),
        positive=summed(np.maximum(advantages, 0.0)),
        negative=summed(np.minimum(advantages, 0.0)),
        weights=summed(np.repeat([branch.weight for branch in branches], counts)),
        sharing=summed(np.ones(len(nodes))),
        owners=np.repeat(np.asarray([b.owner for b in branches], np.int32), counts)[first],
    )
