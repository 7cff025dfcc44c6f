"""Reads a Hugging Face folder of the Llama family: config.json, safetensors, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from .assemble import Array, assemble
from .config import ModelConfig
from .decoder import Params
from .errors import ModelError
from .tokenizer import Tokenizer, load_tokenizer


def load_folder(folder: Path) -> tuple[ModelConfig, Params, Tokenizer]:
    """Shape, float32 weights and tokenizer in the Hugging Face folder `folder`.

    Raises ModelError, in one line that names the file, when something is missing, damaged, or of
    an architecture other than plain Llama.
    """
    config = read_config(folder / "config.json")
    tensors = _Tensors(folder)
    return config, assemble(config, tensors.read, folder), load_tokenizer(folder)


def read_config(file: Path) -> ModelConfig:
    """The shape that a `config.json` describes."""
    try:
        values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: can't be read as JSON: {error}") from error
    _refuse_variants(values, file)
    try:
        heads = int(values["num_attention_heads"])
        rope = values.get("rope_parameters") or {}
        return ModelConfig(
            vocabulary=int(values["vocab_size"]),
            width=int(values["hidden_size"]),
            layers=int(values["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(values.get("num_key_value_heads") or heads),
            head_dim=int(values.get("head_dim") or values["hidden_size"] // heads),
            ffn=int(values["intermediate_size"]),
            rope_theta=float(values.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            eps=float(values["rms_norm_eps"]),
            tied=bool(values.get("tie_word_embeddings", False)),
            context=int(values.get("max_position_embeddings", 2048)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{file}: no usable value for {error}") from error


def _refuse_variants(values: dict[str, Any], file: Path) -> None:
    """ModelError for whatever our decoder would compute differently."""
    if values.get("model_type") != "llama":
        raise ModelError(
            f"{file}: model_type {values.get('model_type')!r} is not supported; use llama"
        )
    if values.get("attention_bias") or values.get("mlp_bias"):
        raise ModelError(f"{file}: biases are not supported")
    rope = values.get("rope_scaling") or values.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ModelError(f"{file}: rotary scaling {kind!r} is not supported")
    if values.get("hidden_act", "silu") != "silu":
        raise ModelError(f"{file}: activation {values['hidden_act']!r} is not supported")


class _Tensors:
    """The tensors of all `*.safetensors` files in a folder, read one at a time."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.safetensors"))
        if not self._files:
            raise ModelError(f"{folder}: no *.safetensors file; give a Hugging Face model folder")
        self._where: dict[str, Path] = {}
        for file in self._files:
            with _open(file) as tensors:
                self._where |= dict.fromkeys(tensors.keys(), file)

    def read(self, name: str) -> Array:
        """The tensor in float32; KeyError when no file has it."""
        # The numpy reader knows no bfloat16; JAX's dtype does.
        with _open(self._where[name]) as tensors:
            return np.asarray(tensors.get_tensor(name)).astype(np.float32)


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="flax")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file}: damaged safetensors file: {error}; fetch it again") from error
