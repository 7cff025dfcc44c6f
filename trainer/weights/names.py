"""The learner's weights under Hugging Face's names: `trainer.model.assemble`, turned around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchgym.agent.policies.tensor_files import Shapes
from patchgym.trainer.model.assemble import LAYER_TENSORS, layer_shapes
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params


def hugging_face_tensors(config: ModelConfig, params: Params) -> Iterator[tuple[str, Any]]:
    """Name and array ([out, in]) of each weight, of the kind (JAX, NumPy) and type of `params`.

    Made one at a time, so that no second copy of the model is held. Bit for bit what was loaded:
    nothing but transposition happens. ValueError for weights that have no such name.
    """
    if strange := params["layers"].keys() - LAYER_TENSORS.keys():
        raise ValueError(f"no Hugging Face name is known for the weights {sorted(strange)}")
    yield "model.embed_tokens.weight", params["embed"]
    for layer in range(config.layers):
        for ours, theirs in LAYER_TENSORS.items():
            yield f"model.layers.{layer}.{theirs}.weight", params["layers"][ours][layer].T
    yield "model.norm.weight", params["norm"]
    if not config.tied:
        yield "lm_head.weight", params["head"].T


def hugging_face_shapes(config: ModelConfig) -> Shapes:
    """Names and shapes that `hugging_face_tensors` gives for a model of this shape."""
    width, layer = config.width, layer_shapes(config)
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocabulary, width)}
    for index in range(config.layers):
        for ours, theirs in LAYER_TENSORS.items():
            shapes[f"model.layers.{index}.{theirs}.weight"] = layer[ours]
    shapes["model.norm.weight"] = (width,)
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocabulary, width)
    return shapes
