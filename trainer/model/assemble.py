"""Weights in the layout that checkpoints use ([out, in], one tensor a layer) to `Params`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .config import ModelConfig
from .decoder import Params
from .errors import ModelError

Array = npt.NDArray[np.float32]

TensorSource = Callable[[str], Array]
"""Gives a tensor by the name that Hugging Face's Llama uses; raises KeyError when missing."""

LAYER_TENSORS = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
"""Our name of a layer's weight, and Hugging Face's within `model.layers.<i>.`."""


def layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shape [out, in] of each of a layer's weights in Hugging Face's files, by our name."""
    width, inner = config.width, config.heads * config.head_dim
    kv = config.kv_heads * config.head_dim
    return {
        "attention_norm": (width,),
        "query": (inner, width),
        "key": (kv, width),
        "value": (kv, width),
        "output": (width, inner),
        "mlp_norm": (width,),
        "gate": (config.ffn, width),
        "up": (config.ffn, width),
        "down": (width, config.ffn),
    }


def assemble(config: ModelConfig, source: TensorSource, origin: Path) -> Params:
    """The decoder's float32 weights from `source`; ModelError names `origin` and the tensor."""
    width, shapes = config.width, layer_shapes(config)

    def stacked(ours: str, theirs: str) -> Array:
        names = [f"model.layers.{i}.{theirs}.weight" for i in range(config.layers)]
        return np.stack([_take(source, name, shapes[ours], origin).T for name in names])

    vocabulary = (config.vocabulary, width)
    params: Params = {
        "embed": jnp.asarray(_take(source, "model.embed_tokens.weight", vocabulary, origin)),
        "layers": {ours: jnp.asarray(stacked(ours, name)) for ours, name in LAYER_TENSORS.items()},
        "norm": jnp.asarray(_take(source, "model.norm.weight", (width,), origin)),
    }
    if not config.tied:
        params["head"] = jnp.asarray(_take(source, "lm_head.weight", vocabulary, origin).T)
    return params


def _take(source: TensorSource, name: str, shape: tuple[int, ...], origin: Path) -> Array:
    try:
        tensor = source(name)
    except KeyError:
        raise ModelError(
            f"{origin}: tensor {name} is missing; the file is incomplete or of another architecture"
        ) from None
    if tensor.shape != shape:
        raise ModelError(
            f"{origin}: tensor {name} has shape {tensor.shape}, its configuration says {shape};"
            " get the model again, or check its configuration"
        )
    return tensor
