"""Held-out loss and accuracy of the present weights.

The loss is the mean over the learned tokens of - log p(token | what stands before it), in nats; the
accuracy is the share of them that are the most likely token there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# By their full names: pyright reaches these also as `trainer.*`, and takes them for others.
from patchgym.trainer.learner import Learner, StepInterrupted
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params, head_weight, hidden_states
from patchgym.trainer.model.execution import HERE, Execution
from patchgym.trainer.parallel.layout import FSDP
from patchgym.trainer.row_programs import row_arrays

from .dataset import Example, to_sequences

_CHUNK = 128
"""Positions whose logits exist at a time."""
_AT_ONCE = 16
"""Conversations between two looks at whether to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the weights make of conversations that they aren't trained on."""

    loss: float
    """Nats a token."""
    accuracy: float
    """Share of tokens, 0 to 1."""
    tokens: int
    """Learned tokens measured."""


def measure(
    learner: Learner,
    examples: Sequence[Example],
    *,
    execution: Execution = HERE,
    should_stop: Callable[[], bool] = lambda: False,
) -> Measured:
    """Measure `learner` on `examples`, of which there is at least one; blocks.

    `execution` is the learner's, by its configuration. Sequences share no prefix here, so that each
    token counts once. Raises StepInterrupted once `should_stop` says yes.
    """
    params = learner.params
    lanes = 1 if execution.layout is None else execution.layout.size(FSDP)
    logprobs = np.zeros((), np.float64)
    hits = tokens = 0
    for start in range(0, len(examples), _AT_ONCE):
        if should_stop():
            raise StepInterrupted("a measurement was given up")
        groups = [
            [sequence] for each in examples[start : start + _AT_ONCE]
            for sequence in to_sequences(each)
        ]  # fmt: skip
        batch = learner.pack(groups)
        for row, found in zip(batch.rows, learner.logprobs(batch), strict=True):
            logprobs += np.sum(found, dtype=np.float64)
            tokens += len(found)
            # On a mesh a program takes a row for each lane: all of them take this one.
            arrays: Any = row_arrays([row] * lanes, execution)
            best = np.asarray(likeliest(learner.model, execution, params, arrays))[0]
            hits += int(np.sum((best == row.reads.targets)[: len(found)]))
    return Measured(loss=-float(logprobs) / tokens, accuracy=hits / tokens, tokens=tokens)


@partial(jax.jit, static_argnums=(0, 1))
def likeliest(
    model: ModelConfig, execution: Execution, params: Params, rows: Mapping[str, jax.Array]
) -> jax.Array:
    """The most likely token [R, T], int32, where each read of the rows has its target.

    `rows` are the arrays of `row_arrays`.
    """
    places = rows["tokens"], rows["positions"], rows["ends"]
    states = hidden_states(model, params, *places, execution=execution)
    head = head_weight(model, params).astype(execution.compute)

    def best(state: jax.Array) -> jax.Array:
        return jnp.argmax(state @ head, axis=-1).astype(jnp.int32)

    def of_row(row: tuple[jax.Array, jax.Array]) -> jax.Array:
        states, readers = row
        found: jax.Array = jax.lax.map(best, states[readers], batch_size=_CHUNK)
        return found

    found: jax.Array = jax.lax.map(of_row, (states, rows["readers"]))
    return found if execution.layout is None else execution.layout.whole(found)
