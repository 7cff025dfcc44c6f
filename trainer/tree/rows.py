"""Rows of fixed lengths out of trees: long groups split, short ones packed side by side.

A row of T tokens also holds T reads (layout.py). Groups whose tree is longer are split, their
common prefix repeated; trees fill rows first-fit, longest first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from .layout import (
    Branch,
    Ints,
    PrefixTree,
    Reads,
    common_prefix,
    depth_first,
    logprob_bits,
    prefix_tree,
)

_READS = fields(Reads)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow:
    """Trees side by side in a row of T tokens and T reads."""

    tokens: Ints
    """[T] ids; 0 in the padding."""
    positions: Ints
    """[T] depth in the tree."""
    ends: Ints
    """[T] index after the last token of the subtree; padding sees and shows only itself."""
    reads: Reads
    """[T] each; zeros in the padding."""
    used: int
    """Tokens that are not padding."""
    read: int
    """Reads that are not padding."""

    @property
    def length(self) -> int:
        """T: what a program is compiled for."""
        return len(self.tokens)


def split(branches: Sequence[Branch], limit: int, *, merge: bool = True) -> list[list[Branch]]:
    """A group in parts whose trees have at most `limit` tokens and reads, neighbours together.

    A branch longer than `limit` has a part to itself; `tree_rows` refuses it.
    """
    parts: list[list[Branch]] = []
    tokens = reads = 0
    for branch in depth_first(branches):
        new, read = len(branch.tokens), int(branch.masked.sum())
        if parts:
            last = parts[-1][-1]
            shared = common_prefix(last.tokens, branch.tokens)
            more = read - (_common_reads(last, branch, shared) if merge else 0)
            if tokens + new - shared <= limit and reads + more <= limit:
                parts[-1].append(branch)
                tokens, reads = tokens + new - shared, reads + more
                continue
        parts.append([branch])
        tokens, reads = new, read
    return parts


def first_fit(trees: Sequence[PrefixTree], length: int) -> list[list[PrefixTree]]:
    """Rows of at most `length` tokens and reads: longest first, each into the first with room.

    Trees of one size keep their order, so that one input has one outcome.
    """
    rows: list[list[PrefixTree]] = []
    left: list[tuple[int, int]] = []
    for tree in sorted(trees, key=lambda tree: -len(tree.tokens)):
        need = len(tree.tokens), len(tree.reads.targets)
        for index, room in enumerate(left):
            if need[0] <= room[0] and need[1] <= room[1]:
                rows[index].append(tree)
                left[index] = room[0] - need[0], room[1] - need[1]
                break
        else:
            rows.append([tree])
            left.append((length - need[0], length - need[1]))
    return rows


def tree_row(trees: Sequence[PrefixTree], length: int) -> TreeRow:
    """`trees` side by side in a row of `length`; they must fit."""
    starts = np.cumsum([0, *(len(tree.tokens) for tree in trees)])
    used, read = int(starts[-1]), sum(len(tree.reads.targets) for tree in trees)
    if max(used, read) > length:
        raise ValueError(f"{used} tokens and {read} reads don't fit in a row of {length}")

    def padded(parts: Sequence[np.ndarray]) -> np.ndarray:
        joined = np.concatenate(parts)
        return np.pad(joined, (0, length - len(joined)))

    ends = np.arange(1, length + 1, dtype=np.int32)
    ends[:used] = np.concatenate([t.ends + s for t, s in zip(trees, starts, strict=False)])
    columns = {
        field.name: padded([getattr(tree.reads, field.name) for tree in trees]) for field in _READS
    }
    readers = [tree.reads.readers + start for tree, start in zip(trees, starts, strict=False)]
    columns["readers"] = padded(readers).astype(np.int32)
    return TreeRow(
        tokens=padded([tree.tokens for tree in trees]),
        positions=padded([tree.positions for tree in trees]),
        ends=ends,
        reads=Reads(**columns),
        used=used,
        read=read,
    )


def lengthened(row: TreeRow, length: int) -> TreeRow:
    """`row` with padding up to `length`, which is at least its own."""
    extra = length - row.length
    if extra == 0:
        return row
    reads = {field.name: np.pad(getattr(row.reads, field.name), (0, extra)) for field in _READS}
    alone = np.arange(row.length + 1, length + 1, dtype=np.int32)
    return TreeRow(
        tokens=np.pad(row.tokens, (0, extra)),
        positions=np.pad(row.positions, (0, extra)),
        ends=np.concatenate([row.ends, alone]),
        reads=Reads(**reads),
        used=row.used,
        read=row.read,
    )


def empty_row(length: int) -> TreeRow:
    """A row of padding alone."""
    ints, floats = np.zeros(length, np.int32), np.zeros(length, np.float32)
    return TreeRow(
        tokens=ints,
        positions=ints,
        ends=np.arange(1, length + 1, dtype=np.int32),
        reads=Reads(
            readers=ints,
            targets=ints,
            sampler_logprobs=floats,
            positive=floats,
            negative=floats,
            weights=floats,
            sharing=floats,
            owners=ints,
        ),
        used=0,
        read=0,
    )


def tree_rows(
    groups: Sequence[Sequence[Branch]], length: int, *, merge: bool = True
) -> list[TreeRow]:
    """All of `groups` in rows of `length`: split where a tree is longer, then first-fit.

    Raises ValueError for a sequence longer than the row, naming it: left out silently, it would
    change the gradient.
    """
    for index, group in enumerate(groups):
        for place, branch in enumerate(group):
            if len(branch.tokens) > length:
                raise ValueError(
                    f"sequence {place} of group {index} has {len(branch.tokens)} tokens, the row "
                    f"{length}: raise the row's length or lower the rollout's token limit"
                )
    parts = [part for group in groups for part in split(group, length, merge=merge)]
    trees = [prefix_tree(part, merge=merge) for part in parts]
    return [tree_row(row, length) for row in first_fit(trees, length)]


def _common_reads(first: Branch, second: Branch, shared: int) -> int:
    """Reads that two neighbours surely share within their common prefix of `shared` tokens."""
    both = first.masked[:shared] & second.masked[:shared]
    return int((both & (logprob_bits(first)[:shared] == logprob_bits(second)[:shared])).sum())
