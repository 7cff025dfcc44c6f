"""A learner's programs for devices that aren't there: shapes in the place of arrays.

A training step calls `add_rows` once for each stack of rows, then `update` once. Both are traced
here with the shardings that the learner's own arrays have. Axes: R rows at once, T tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.lora.adapters import init_adapters
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.model.execution import HERE, Execution
from patchgym.trainer.optimizer import start as start_optimizer
from patchgym.trainer.optimizer import state_shardings, update
from patchgym.trainer.parallel.layout import FSDP, Layout
from patchgym.trainer.row_programs import Weights, add_rows, row_arrays
from patchgym.trainer.tree import empty_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Everything that a learner holds on its devices, as shapes with shardings."""

    weights: Weights
    """What is trained, and the frozen model under adapters."""
    optimizer: Any
    """optax's state."""
    gradient: Params
    """Float32, of what is trained."""
    rows: dict[str, jax.ShapeDtypeStruct]
    """One stack of rows, by the names of `row_arrays`."""


def learner_shapes(
    config: LearnerConfig, model: ModelConfig, execution: Execution, tokens: int
) -> Shapes:
    """Shapes of a learner over `execution`'s layout, and of a stack of rows of `tokens`.

    Trained weights are float32; a model under adapters is bfloat16. Nothing is allocated.
    Raises ValueError without a layout.
    """
    layout = execution.layout
    if layout is None:
        raise ValueError("programs are compiled for a mesh: give the execution a layout")
    params = jax.eval_shape(partial(init_params, model, 0))
    weights = Weights(params)
    if config.lora.rank:
        adapters = jax.eval_shape(partial(init_adapters, config.lora, model, 0))
        weights = Weights(adapters, _typed(params, jnp.bfloat16))
    trained = _laid(layout, weights.trained)
    state = jax.eval_shape(partial(start_optimizer, config), weights.trained)
    places = state_shardings(config, weights.trained, layout)
    return Shapes(
        weights=Weights(trained, weights.frozen and _laid(layout, weights.frozen)),
        optimizer=jax.tree.map(_placed, state, places),
        gradient=_typed(trained, jnp.float32),
        rows=row_shapes(layout, tokens),
    )


def row_shapes(layout: Layout, tokens: int) -> dict[str, jax.ShapeDtypeStruct]:
    """What `row_arrays` makes of a row of `tokens` for each of the layout's `fsdp` devices."""
    one = row_arrays([empty_row(tokens)], HERE)
    where = layout.sharding(FSDP)
    return {
        name: jax.ShapeDtypeStruct(
            (layout.size(FSDP), *array.shape[1:]), array.dtype, sharding=where
        )
        for name, array in one.items()
    }


def lower_programs(
    config: LearnerConfig,
    model: ModelConfig,
    execution: Execution,
    shapes: Shapes,
    platforms: Sequence[str] = ("tpu",),
) -> dict[str, Any]:
    """`add_rows` and `update`, lowered but not yet compiled, by name."""
    scale = jax.ShapeDtypeStruct((), jnp.float32)
    gradient, rows = shapes.gradient, shapes.rows
    traced = {
        "add_rows": add_rows.trace(config, model, execution, shapes.weights, gradient, rows),
        "update": update.trace(config, shapes.weights.trained, shapes.optimizer, gradient, scale),
    }
    return {name: one.lower(lowering_platforms=tuple(platforms)) for name, one in traced.items()}


def device_bytes(shapes: Any) -> int:
    """Bytes that arrays of `shapes` take on each device."""
    return sum(_shard_count(one) * one.dtype.itemsize for one in jax.tree.leaves(shapes))


def _shard_count(one: jax.ShapeDtypeStruct) -> int:
    shape = one.sharding.shard_shape(one.shape) if one.sharding is not None else one.shape
    count = 1
    for size in shape:
        count *= size
    return count


def _laid(layout: Layout, tree: Params) -> Params:
    laid: Params = jax.tree.map(_placed, tree, layout.shardings(tree))
    return laid


def _placed(array: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)


def _typed(tree: Params, dtype: Any) -> Params:
    typed: Params = jax.tree.map(
        lambda one: jax.ShapeDtypeStruct(one.shape, dtype, sharding=one.sharding), tree
    )
    return typed
