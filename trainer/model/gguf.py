"""Reads a GGUF file: its shape, its weights in float32, its tokenizer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .assemble import Array, assemble
from .config import ModelConfig
from .decoder import Params
from .errors import ModelError
from .gguf_config import read_family, read_shape
from .gguf_fields import Fields
from .gguf_metadata import TensorPlace, read_head, read_metadata
from .gguf_tokenizer import read_tokenizer
from .layout import EMBED, HEAD, NORM, Shape, layer_tensors, tensor_name
from .tokenizer import Tokenizer

_LAYER_NAMES = {
    "attention_norm": "attn_norm.weight",
    "query": "attn_q.weight",
    "key": "attn_k.weight",
    "value": "attn_v.weight",
    "output": "attn_output.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
    "query_bias": "attn_q.bias",
    "key_bias": "attn_k.bias",
    "value_bias": "attn_v.bias",
    "query_norm": "attn_q_norm.weight",
    "key_norm": "attn_k_norm.weight",
    "after_attention_norm": "post_attention_norm.weight",
    "after_mlp_norm": "post_ffw_norm.weight",
}
_OUTER_NAMES = {EMBED: "token_embd.weight", NORM: "output_norm.weight", HEAD: "output.weight"}
_DIVISORS = "rope_freqs.weight"
_SPARE = (_DIVISORS, "output.weight")


def load_gguf(path: Path) -> tuple[ModelConfig, Params, Tokenizer]:
    """Shape, float32 weights and tokenizer in the GGUF file `path`.

    Raises ModelError, in one line that names the file and what to do, when the file is missing,
    truncated, damaged, or of an architecture that is not supported.
    """
    values, places = read_head(path)
    fields = Fields(values, path)
    read_family(fields)
    tensors = _Tensors(places, path)
    config = read_shape(fields, tensors.shapes, tensors.divisors())
    source = tensors.source(config)
    return config, assemble(config, source, path), read_tokenizer(fields)


def load_vocabulary(path: Path) -> Tokenizer:
    """The tokenizer alone of the GGUF file `path`, of any architecture, with or without weights.

    Raises ModelError, in one line, for a damaged file or a kind of vocabulary that isn't supported.
    """
    return read_tokenizer(Fields(read_metadata(path), path))


class _Tensors:
    """The file's tensors, dequantized."""

    def __init__(self, places: Mapping[str, TensorPlace], path: Path) -> None:
        self._path, self._places = path, places
        self._bytes = np.memmap(path, np.uint8, mode="r")

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of each tensor, [out, in], by llama.cpp's name."""
        return {name: place.shape for name, place in self._places.items()}

    def divisors(self) -> Array | None:
        """What Llama 3's frequencies are divided by, [D/2], if they are."""
        return self.read(_DIVISORS).ravel() if _DIVISORS in self._places else None

    def source(self, config: ModelConfig) -> _Source:
        """The tensors under Hugging Face's names; ModelError for one that `config` has no use for.

        A layer's bias or norm that was left out would go unnoticed otherwise.
        """
        source = _Source(self, config)
        strange = self._places.keys() - set(source.names.values()) - set(_SPARE)
        if strange:
            raise ModelError(
                f"{self._path}: tensor {min(strange)} is unknown to a {config.family}"
                f" ({len(strange)} such tensors); use the model's Hugging Face folder"
            )
        return source

    def read(self, name: str) -> Array:
        """The tensor in float32, [out, in]; KeyError when the file has none of that name."""
        import gguf

        place = self._places[name]
        try:
            kind = gguf.GGMLQuantizationType(place.kind)
            stored = gguf.quant_shape_to_byte_shape(place.shape, kind)
            data = np.asarray(self._bytes[place.start : place.start + math.prod(stored)])
            values: Array = gguf.dequantize(data.reshape(stored), kind).astype(np.float32)
            return values.reshape(place.shape)
        except (ValueError, LookupError, NotImplementedError, MemoryError) as error:
            raise ModelError(
                f"{self._path}: tensor {name} is truncated or damaged ({error});"
                " delete it and fetch the model again"
            ) from error


class _Source:
    """Tensors by Hugging Face's names, with what llama.cpp's converter did to them undone."""

    def __init__(self, tensors: _Tensors, config: ModelConfig) -> None:
        self._tensors, self._offset = tensors, config.parts.offset_norms
        self._heads: dict[str, int] = {}
        if config.family == "llama":
            self._heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
        self.names = dict(_OUTER_NAMES)
        for layer in range(config.layers):
            for ours, theirs in layer_tensors(config).items():
                self.names[tensor_name(layer, theirs)] = f"blk.{layer}.{_LAYER_NAMES[ours]}"

    def __call__(self, name: str) -> Array:
        """The tensor in float32, [out, in]; KeyError when the file has none of that name."""
        theirs = self.names[name]
        values = self._tensors.read(theirs)
        if self._offset and theirs.endswith("norm.weight"):
            return values - np.float32(1)
        for part, heads in self._heads.items():
            if f".{part}." in theirs:
                return _separate_halves(values, heads)
        return values


def _separate_halves(weight: Array, heads: int) -> Array:
    """Undo llama.cpp's order of query and key rows [heads*D, d].

    It puts row i of a head's first half beside row i of the second; we rotate halves.
    """
    out, width = weight.shape
    pairs = weight.reshape(heads, out // heads // 2, 2, width)
    return pairs.transpose(0, 2, 1, 3).reshape(out, width)
