"""Trajectories as Tunix wants them: prompts padded on the left, completions on the right.

NumPy alone, so that it can be tested without Tunix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

PAD = 0
"""Tunix finds padding by this id, which no trajectory has."""


def padded_arrays(held: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """`prompt_ids` [N, P]; `completion_ids`, `completion_mask` (int32), `logprobs` [N, C]; N is the
    number of sequences, P the longest prompt, C the longest completion.

    `held` is a file of trajectories: `tokens`, `loss_mask` and `sampler_logprobs` of all sequences
    one after the other, `lengths` and `prompts` [N] how many tokens each and its prompt have.
    """
    prompts, lengths = held["prompts"], held["lengths"]
    count, width, depth = len(lengths), int(prompts.max()), int((lengths - prompts).max())
    found = {
        "prompt_ids": np.full((count, width), PAD, np.int32),
        "completion_ids": np.full((count, depth), PAD, np.int32),
        "completion_mask": np.zeros((count, depth), np.int32),
        "logprobs": np.zeros((count, depth), np.float32),
    }
    for row, end in enumerate(np.cumsum(lengths)):
        start = end - lengths[row]
        cut, size = start + prompts[row], lengths[row] - prompts[row]
        found["prompt_ids"][row, width - prompts[row] :] = held["tokens"][start:cut]
        found["completion_ids"][row, :size] = held["tokens"][cut:end]
        found["completion_mask"][row, :size] = held["loss_mask"][cut:end]
        found["logprobs"][row, :size] = held["sampler_logprobs"][cut:end]
    return found
