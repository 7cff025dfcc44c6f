"""A step's groups as arrays, and back, bit for bit; and what came of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.step_report import StepReport


def packed(groups: Sequence[Sequence[TrainSequence]]) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Arrays and fields of a message: all tokens in one row, and where each sequence ends."""
    flat = [sequence for group in groups for sequence in group]
    arrays = [
        _joined([each.tokens for each in flat], np.int32),
        _joined([each.loss_mask for each in flat], np.bool_),
        _joined([each.sampler_logprobs for each in flat], np.float32),
        np.asarray([each.advantage for each in flat], np.float64),
        np.asarray([each.first for each in flat], np.bool_),
        np.asarray([len(each.tokens) for each in flat], np.int64),
    ]
    return arrays, {"groups": [len(group) for group in groups]}


def unpacked(arrays: Sequence[np.ndarray], fields: dict[str, Any]) -> list[list[TrainSequence]]:
    """The groups that `packed` made these of."""
    tokens, mask, logprobs, advantages, firsts, lengths = arrays
    ends = np.cumsum(lengths)
    flat = [
        TrainSequence(
            tokens=tokens[end - length : end],
            loss_mask=mask[end - length : end],
            sampler_logprobs=logprobs[end - length : end],
            advantage=float(advantage),
            first=bool(first),
        )
        for length, end, advantage, first in zip(lengths, ends, advantages, firsts, strict=True)
    ]
    rest = iter(flat)
    return [[next(rest) for _ in range(size)] for size in fields["groups"]]


def outcome(report: StepReport) -> list[str]:
    """What every process must find of one step, to the last digit."""
    return [f"step {report.step}", f"loss {report.loss!r}", f"gradient {report.grad_norm!r}"]


def _joined(parts: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.zeros(0, dtype)
