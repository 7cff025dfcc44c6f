"""What one call of the learner's `train` did."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .batching import Batch
from .losses import TokenSums


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one call of `train` did. Means are over loss tokens, a shared one once a sequence."""

    step: int
    """Optimizer steps applied so far, this one included."""
    applied: bool
    """False: nothing to learn, or a loss or gradient that is not finite; then the weights and the
    optimizer are as they were."""
    reason: str
    """Why it was not applied; empty when it was."""
    not_finite: bool
    """It was skipped because a loss or a gradient was not finite: the batch is worth keeping."""
    skipped: int
    """Batches that this learner has skipped for that reason so far."""
    loss: float
    """Negated objective over what the tokens are averaged by; of several updates, the mean."""
    grad_norm: float
    """Global norm before clipping; of several updates, the largest."""
    learning_rate: float
    """Step size of the step's first update."""
    entropy: float
    """Mean entropy of the learner's distribution, nats a token."""
    mean_ratio: float
    """Mean of learner probability over sampler probability."""
    clipped_fraction: float
    """Share of loss tokens whose gradient the clip removed, 0 to 1."""
    truncated_fraction: float
    """Share of loss tokens whose importance weight was cut to `ratio_cap`, 0 to 1."""
    rejected_fraction: float
    """Share of loss tokens in sequences that were rejected for their log-ratio, 0 to 1."""
    reference_kl: float
    """Nats a token, estimate of KL(learner || initial weights); 0 without that penalty."""
    mismatch_kl: float
    """Nats a token, estimate of KL(sampler || learner). At staleness 0 anything above about 1e-3
    means that sampler and learner don't hold the same weights."""
    mismatch_mean: float
    """Nats: mean of |learner's - sampler's log-probability| over the loss tokens."""
    mismatch_max: float
    """Nats: the largest of these differences."""
    sequences: int
    """Trajectories handed over."""
    loss_tokens: int
    """Masked tokens trained on."""
    flat_tokens: int
    """Tokens of the trained sequences, one by one."""
    tree_tokens: int
    """The same with prefixes shared."""
    padded_tokens: int
    """Tokens computed, padding included."""
    rows: int
    """Rows computed."""
    compilations: int
    """Row lengths compiled during this call."""
    pack_seconds: float
    """Laying the rows out."""
    gradient_seconds: float
    """Forward and backward passes, compilations included."""
    update_seconds: float
    """Clipping and the optimizer."""


def total_sums(parts: Sequence[TokenSums]) -> TokenSums:
    """Sums over rows, in double precision; `largest` is the largest.

    Each field of `parts` is a scalar or has one entry a row, [R].
    """
    columns = [
        np.concatenate([[0.0], *(np.ravel(np.asarray(part[place], np.float64)) for part in parts)])
        for place in range(len(TokenSums._fields))
    ]
    total = TokenSums(*(column.sum() for column in columns))
    return total._replace(largest=columns[TokenSums._fields.index("largest")].max())


def make_report(batches: Sequence[Batch], sums: TokenSums, **values: Any) -> StepReport:
    """Means of `sums` and counts of `batches`, beside the values given."""
    tokens = max(float(sums.tokens), 1.0)
    return StepReport(
        entropy=float(sums.entropy) / tokens,
        mean_ratio=float(sums.ratio) / tokens,
        clipped_fraction=float(sums.clipped) / tokens,
        truncated_fraction=float(sums.truncated) / tokens,
        rejected_fraction=float(sums.rejected) / tokens,
        reference_kl=float(sums.reference_kl) / tokens,
        mismatch_kl=float(sums.mismatch_kl) / tokens,
        mismatch_mean=float(sums.difference) / tokens,
        mismatch_max=float(sums.largest),
        sequences=sum(batch.sequences for batch in batches),
        loss_tokens=sum(batch.loss_tokens for batch in batches),
        flat_tokens=sum(batch.flat_tokens for batch in batches),
        tree_tokens=sum(batch.tree_tokens for batch in batches),
        padded_tokens=sum(batch.padded_tokens for batch in batches),
        rows=sum(len(batch.rows) for batch in batches),
        **values,
    )
