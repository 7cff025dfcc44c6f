"""From a learner's settings and the devices that are there to how its model is computed."""

from __future__ import annotations

from dataclasses import replace

import jax

from patchgym.trainer.attention.context import context_order

from .learner_config import LearnerConfig
from .model.config import ModelConfig
from .model.execution import ON_TPU, Execution
from .parallel.layout import CONTEXT, TENSOR, make_layout


def execution_of(config: LearnerConfig) -> Execution:
    """What `config` asks for, on this process's backend.

    On TPU attention runs in Pallas kernels, and pieces are larger, as matrix units want them.
    Raises ValueError for a mesh of another number of devices than there are.
    """
    layout = make_layout(config.mesh) if config.mesh.devices > 1 else None
    plain = Execution(compute=config.compute, keep=config.keep, layout=layout, lora=config.lora)
    if jax.default_backend() == "tpu":
        return replace(
            plain,
            attention=ON_TPU.attention,
            block=ON_TPU.block,
            head_chunk=ON_TPU.head_chunk,
        )
    return plain


def check_fit(config: LearnerConfig, model: ModelConfig, execution: Execution) -> None:
    """Raise ValueError for row lengths or heads that the mesh can't share evenly."""
    layout = execution.layout
    if layout is None:
        return
    if model.kv_heads % layout.size(TENSOR):
        raise ValueError(
            f"learner.mesh.tensor is {layout.size(TENSOR)}, which does not divide the model's "
            f"{model.kv_heads} key heads: give these devices to context or fsdp instead"
        )
    for length in config.row_tokens:
        try:
            context_order(length, execution.block, layout.size(CONTEXT))
        except ValueError as error:
            raise ValueError(f"learner.row_tokens has {length}: {error}") from None
