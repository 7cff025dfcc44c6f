"""The learner's weights under Hugging Face's names: `trainer.model.assemble`, turned around."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchgym.agent.policies.tensor_files import Shapes
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.model.layout import (
    EMBED,
    HEAD,
    NORM,
    layer_tensors,
    tensor_name,
    tensor_shapes,
)


def hugging_face_tensors(config: ModelConfig, params: Params) -> Iterator[tuple[str, Any]]:
    """Name and array ([out, in]) of each weight, of the kind (JAX, NumPy) and type of `params`.

    Made one at a time, so that no second copy of the model is held. Bit for bit what was loaded:
    nothing but transposition happens. ValueError for weights that have no such name, or that are
    missing.
    """
    names, layers = layer_tensors(config), params["layers"]
    if strange := layers.keys() - names.keys():
        raise ValueError(f"no Hugging Face name is known for the weights {sorted(strange)}")
    if missing := names.keys() - layers.keys():
        raise ValueError(f"a {config.family} needs the weights {sorted(missing)} too")
    yield EMBED, params["embed"]
    for layer in range(config.layers):
        for ours, theirs in names.items():
            yield tensor_name(layer, theirs), layers[ours][layer].T
    yield NORM, params["norm"]
    if not config.tied:
        yield HEAD, params["head"].T


def hugging_face_shapes(config: ModelConfig) -> Shapes:
    """Names and shapes that `hugging_face_tensors` gives for a model of this shape."""
    return tensor_shapes(config)
