"""The compiled functions of rows: log-probabilities, and the gradient of their loss.

Axes: R rows that a program takes at once (one, or one for each of the mesh's `fsdp` devices),
T tokens of a row, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from patchgym.trainer.attention.context import context_order
from patchgym.trainer.lora.adapters import adapted, merged
from patchgym.trainer.loss_config import LossConfig

from .losses import RowTokens, TokenSums, row_sums, token_logprobs
from .model.config import ModelConfig
from .model.decoder import Params, head_weight, hidden_states
from .model.execution import Execution
from .parallel.layout import CONTEXT, FSDP
from .parallel.vocabulary import read_logprobs
from .tree import Reads, TreeRow

Arrays = dict[str, jax.Array | np.ndarray]
"""The arrays of rows that the device reads, by the names of `TreeRow` and its reads."""


def row_arrays(rows: Sequence[TreeRow], execution: Execution) -> Arrays:
    """What the device reads of `rows`, which have one length: [R, T] each, `count` [R].

    Tokens lie in the order of the execution's layout, and on its devices.
    """
    arrays: Arrays = {
        name: np.stack([getattr(row, name) for row in rows])
        for name in ("tokens", "positions", "ends")
    }
    for field in fields(Reads):
        arrays[field.name] = np.stack([getattr(row.reads, field.name) for row in rows])
    arrays["count"] = np.asarray([row.read for row in rows], np.int32)
    layout = execution.layout
    if layout is None:
        return arrays
    order = context_order(rows[0].length, execution.block, layout.size(CONTEXT))
    for name in ("tokens", "positions", "ends"):
        arrays[name] = arrays[name][:, order]
    arrays["readers"] = np.argsort(order).astype(np.int32)[arrays["readers"]]
    where = layout.sharding(FSDP)
    return {name: jax.device_put(array, where) for name, array in arrays.items()}


class Weights(NamedTuple):
    """What is trained, and the model to which it is added."""

    trained: Params
    """All weights, or adapters."""
    frozen: Params | None = None
    """The model under adapters; None when all weights are trained."""


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def add_rows(
    config: LossConfig,
    model: ModelConfig,
    execution: Execution,
    weights: Weights,
    gradient: Params,
    rows: Mapping[str, jax.Array],
) -> tuple[Params, TokenSums]:
    """`gradient`, float32, plus that of what is trained, and each row's sums, [R].

    `rows` holds the arrays of `row_arrays` and, where the loss reads them, `proximal_logprobs` and
    `reference_logprobs` [R, T].
    """

    def objective(trained: Params) -> tuple[jax.Array, TokenSums]:
        slope = config.entropy_coefficient > 0
        params = model_weights(execution, weights._replace(trained=trained))
        logprobs, entropies = _logprobs(model, execution, params, rows, slope)
        read = {name: rows[name] for name in RowTokens._fields if name in rows}
        tokens = RowTokens(logprobs=logprobs, entropies=entropies, **read)
        sums = jax.vmap(partial(row_sums, config))(tokens)
        return -sums.objective.sum(), sums

    added, sums = jax.grad(objective, has_aux=True)(weights.trained)
    gradient = jax.tree.map(lambda total, part: total + part.astype(jnp.float32), gradient, added)
    if execution.layout is None:
        return gradient, sums
    return execution.layout.constrain_weights(gradient), execution.layout.whole(sums)


@partial(jax.jit, static_argnums=(0, 1))
def row_logprobs(
    model: ModelConfig, execution: Execution, weights: Weights, rows: Mapping[str, jax.Array]
) -> jax.Array:
    """Log-probabilities [R, T] of the rows' targets under `weights`, nats; 0 past the last."""
    params = model_weights(execution, weights)
    found = _logprobs(model, execution, params, rows, False)[0]
    return found if execution.layout is None else execution.layout.whole(found)


@partial(jax.jit, static_argnums=0)
def merged_weights(execution: Execution, weights: Weights) -> Params:
    """The model that `weights` are, adapters added to its matrices."""
    if weights.frozen is None:
        return weights.trained
    return merged(execution.lora, weights.frozen, weights.trained)


def model_weights(execution: Execution, weights: Weights) -> Params:
    """What `hidden_states` takes: the weights themselves, or with their adapters beside them."""
    if weights.frozen is None:
        return weights.trained
    return adapted(execution.lora, weights.frozen, weights.trained)


def _logprobs(
    model: ModelConfig,
    execution: Execution,
    params: Params,
    rows: Mapping[str, jax.Array],
    entropy_slope: bool,
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities and entropies [R, T] of the rows' targets."""
    states = hidden_states(
        model, params, rows["tokens"], rows["positions"], rows["ends"], execution=execution
    )
    head = head_weight(model, params).T.astype(execution.compute)
    chunk = _chunk(rows["targets"].shape[-1], execution.head_chunk)
    read = rows["readers"], rows["targets"], rows["count"]
    if execution.layout is not None:
        return read_logprobs(
            execution.layout, states, head, *read, chunk, entropy_slope=entropy_slope
        )

    def of_row(row: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        states, readers, targets, count = row
        return token_logprobs(
            states[readers], head, targets, count, chunk, entropy_slope=entropy_slope
        )

    found: tuple[jax.Array, jax.Array] = jax.lax.map(of_row, (states, *read))
    return found


def _chunk(length: int, most: int) -> int:
    """The largest divisor of `length` that is at most `most`."""
    return next(size for size in range(min(length, most), 0, -1) if length % size == 0)
