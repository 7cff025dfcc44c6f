"""Lays the sequences of groups out in rows of fixed lengths, every shared prefix stored once.

A group's sequences share their prompt, and those that forked later share more. Their tokens form a
tree; written in depth-first order, token q sees token k exactly when `k <= q < ends[k]`, where
`ends[k]` is the index after the last token of k's subtree. Side by side, several trees are packed
the same way: no token of one lies inside a subtree of another.

            prompt         a1 a2 a3    b1 b2          two sequences, prompt + a and prompt + b
    index   0 1 2 3        4  5  6     7  8
    ends    9 9 9 9        7  7  7     9  9
    parent  - 0 1 2        3  4  5     3  7           b1 is predicted by the prompt's last token

Two sequences share a token only where everything that the loss reads agrees up to there: the ids,
the masks, and the bits of the sampler's log-probabilities. Otherwise the tree forks. That makes the
rows exact: loss and gradients equal those of one row a sequence.

A group whose tree is longer than the row is split, its prompt repeated; fragments of several groups
fill a row first-fit, longest first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

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
    """Advantage relative to the group."""
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
class Row:
    """One packed row of T tokens; of the T loss positions the first `reads` are used."""

    tokens: Ints
    """[T] ids; 0 in the padding."""
    positions: Ints
    """[T] depth in the tree, which is the position in the sequence."""
    ends: Ints
    """[T] index after the last token of the subtree; padding sees and shows only itself."""
    readers: Ints
    """[T] index of the token whose hidden state predicts the target (the parent on the path)."""
    targets: Ints
    """[T] ids whose log-probability the loss reads."""
    sampler_logprobs: Floats
    """[T] natural log."""
    positive: Floats
    """[T] sum of the positive advantages of the sequences that share the token."""
    negative: Floats
    """[T] sum of the negative ones."""
    sharing: Floats
    """[T] number of sequences that share the token; 0 in the padding."""
    used: int
    """Tokens that are not padding."""
    reads: int
    """Loss positions that are not padding."""

    @property
    def length(self) -> int:
        """T: what a program is compiled for."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows, and how they came out."""

    rows: tuple[Row, ...]
    """In the order in which they are trained, which is fixed by the input."""
    sequences: int
    """Trajectories handed over, trained or not; the loss divides by this."""
    flat_tokens: int
    """Tokens of all trained sequences laid out one by one."""
    tree_tokens: int
    """Tokens in the rows, prefixes shared, without padding."""
    padded_tokens: int
    """Tokens in the rows with padding: what is computed."""
    loss_tokens: int
    """Masked tokens of all sequences, a shared one once a sequence."""


@dataclass(slots=True)
class _Tree:
    """A depth-first layout under construction; lists of one entry a node."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    masked: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    positive: list[float] = field(default_factory=list)
    negative: list[float] = field(default_factory=list)
    sharing: list[int] = field(default_factory=list)


def pack(groups: Sequence[Sequence[TrainSequence]], *, row_tokens: Sequence[int]) -> Batch:
    """Lay `groups` out in rows whose lengths are among `row_tokens` (ascending).

    Sequences with nothing to learn (no masked token, or an advantage of 0) take no space, but count
    in `sequences`. Raises ValueError when a sequence is longer than the longest row: the caller
    bounds its contexts, and a silently missing sequence would change the gradient.
    """
    longest = row_tokens[-1]
    kept = [[s for s in group if s.loss_mask.any() and s.advantage != 0] for group in groups]
    for index, group in enumerate(groups):
        for sequence in group:
            if len(sequence.tokens) > longest:
                raise ValueError(
                    f"a sequence of group {index} has {len(sequence.tokens)} tokens, the longest "
                    f"row {longest}: raise learner.row_tokens or lower the rollout's token limit"
                )
    plans = [_plan(kept, limit, row_tokens) for limit in row_tokens]
    rows = min((plan for plan in plans if plan is not None), key=_cost, default=())
    return Batch(
        rows=rows,
        sequences=sum(s.first for group in groups for s in group),
        flat_tokens=sum(len(s.tokens) for group in kept for s in group),
        tree_tokens=sum(row.used for row in rows),
        padded_tokens=sum(len(row.tokens) for row in rows),
        loss_tokens=sum(int(s.loss_mask.sum()) for group in kept for s in group),
    )


def flat_rows(groups: Sequence[Sequence[TrainSequence]], *, length: int) -> Batch:
    """One padded row of `length` a sequence: the reference that `pack` must equal."""
    kept = [s for group in groups for s in group if s.loss_mask.any() and s.advantage != 0]
    rows = tuple(_row([_tree([s])], length) for s in kept)
    return Batch(
        rows=rows,
        sequences=sum(s.first for group in groups for s in group),
        flat_tokens=sum(len(s.tokens) for s in kept),
        tree_tokens=sum(row.used for row in rows),
        padded_tokens=length * len(rows),
        loss_tokens=sum(int(s.loss_mask.sum()) for s in kept),
    )


def _cost(rows: tuple[Row, ...]) -> float:
    """Relative time of training `rows`: linear in tokens, plus attention's square."""
    return sum(len(row.tokens) * (1 + len(row.tokens) / ATTENTION_TOKENS) for row in rows)


def _plan(
    groups: list[list[TrainSequence]], limit: int, row_tokens: Sequence[int]
) -> tuple[Row, ...] | None:
    """Rows of at most `limit` tokens, or None when a sequence does not fit in one."""
    if any(len(s.tokens) > limit for group in groups for s in group):
        return None
    trees = [tree for group in groups for tree in _fragments(group, limit)]
    bins: list[list[_Tree]] = []
    # Stable sort: trees of one length keep their order, so the same input gives the same rows.
    for tree in sorted(trees, key=lambda tree: -len(tree.tokens)):
        for held in bins:
            if sum(len(t.tokens) for t in held) + len(tree.tokens) <= limit:
                held.append(tree)
                break
        else:
            bins.append([tree])
    return tuple(_row(held, _fit(held, row_tokens)) for held in bins)


def _fit(trees: list[_Tree], row_tokens: Sequence[int]) -> int:
    """The shortest row that holds `trees`."""
    size = sum(len(tree.tokens) for tree in trees)
    return next(length for length in row_tokens if length >= size)


def _fragments(group: list[TrainSequence], limit: int) -> list[_Tree]:
    """Trees of at most `limit` tokens that together hold the group, neighbours kept together."""
    fragments: list[list[TrainSequence]] = []
    size = 0
    last: list[int] = []
    for sequence, key in sorted(((s, _key(s)) for s in group), key=lambda pair: pair[1]):
        new = len(key) - _common(last, key)
        if fragments and size + new <= limit:
            fragments[-1].append(sequence)
            size += new
        else:
            fragments.append([sequence])
            size = len(key)
        last = key
    return [_tree(members) for members in fragments]


def _key(sequence: TrainSequence) -> list[int]:
    """One integer a token that holds all that must agree where two sequences share it."""
    mask = sequence.loss_mask.astype(np.uint64)
    logprobs = np.where(sequence.loss_mask, sequence.sampler_logprobs, 0).astype(np.float32)
    bits = (logprobs + np.float32(0)).view(np.uint32).astype(np.uint64)  # -0.0 becomes 0.0
    ids = sequence.tokens.astype(np.uint64)
    keys: list[int] = ((ids << np.uint64(33)) | (mask << np.uint64(32)) | bits).tolist()
    return keys


def _common(first: list[int], second: list[int]) -> int:
    """Length of the common prefix."""
    shorter = min(len(first), len(second))
    return next((i for i in range(shorter) if first[i] != second[i]), shorter)


def _tree(members: list[TrainSequence]) -> _Tree:
    """The prefix tree of `members` in depth-first order."""
    tree = _Tree()
    path: list[int] = []  # nodes from the root to the last token of the sequence before
    last: list[int] = []
    # Sorted by key, sequences that share a prefix are neighbours, so one path is enough.
    for sequence, key in sorted(((s, _key(s)) for s in members), key=lambda pair: pair[1]):
        shared = _common(last, key)
        for node in path[shared:]:
            tree.ends[node] = len(tree.tokens)
        del path[shared:]
        for depth in range(shared, len(key)):
            path.append(_add_node(tree, sequence, depth, path[-1] if path else -1))
        for node in path:
            if tree.masked[node]:
                tree.positive[node] += max(sequence.advantage, 0.0)
                tree.negative[node] += min(sequence.advantage, 0.0)
                tree.sharing[node] += 1
        last = key
    for node in path:
        tree.ends[node] = len(tree.tokens)
    return tree


def _add_node(tree: _Tree, sequence: TrainSequence, depth: int, parent: int) -> int:
    """Append the token of `sequence` at `depth`; returns its index."""
    tree.tokens.append(int(sequence.tokens[depth]))
    tree.positions.append(depth)
    tree.ends.append(0)
    tree.parents.append(parent)
    tree.masked.append(bool(sequence.loss_mask[depth]))
    tree.logprobs.append(float(sequence.sampler_logprobs[depth]))
    tree.positive.append(0.0)
    tree.negative.append(0.0)
    tree.sharing.append(0)
    return len(tree.tokens) - 1


def _row(trees: list[_Tree], length: int) -> Row:
    """`trees` side by side in a row of `length`."""
    used = sum(len(tree.tokens) for tree in trees)
    tokens = np.zeros(length, np.int32)
    positions = np.zeros(length, np.int32)
    ends = np.arange(1, length + 1, dtype=np.int32)
    readers: list[Ints] = []
    reads: list[list[Floats]] = []
    targets: list[Ints] = []
    start = 0
    for tree in trees:
        stop = start + len(tree.tokens)
        tokens[start:stop] = tree.tokens
        positions[start:stop] = tree.positions
        ends[start:stop] = np.asarray(tree.ends) + start
        masked = np.asarray(tree.masked, np.bool_)
        readers.append(np.asarray(tree.parents, np.int32)[masked] + np.int32(start))
        targets.append(np.asarray(tree.tokens, np.int32)[masked])
        columns = (tree.logprobs, tree.positive, tree.negative, tree.sharing)
        reads.append([np.asarray(column, np.float32)[masked] for column in columns])
        start = stop
    logprobs, positive, negative, sharing = (
        _padded(np.concatenate([part[column] for part in reads]), length) for column in range(4)
    )
    return Row(
        tokens=tokens,
        positions=positions,
        ends=ends,
        readers=_padded(np.concatenate(readers), length),
        targets=_padded(np.concatenate(targets), length),
        sampler_logprobs=logprobs,
        positive=positive,
        negative=negative,
        sharing=sharing,
        used=used,
        reads=sum(len(part) for part in targets),
    )


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    """`values` with zeros after them, up to `length`."""
    return np.pad(values, (0, length - len(values)))
