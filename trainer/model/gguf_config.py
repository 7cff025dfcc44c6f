"""The shape of the model in a GGUF file, from its metadata, in llama.cpp's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .config import Family, ModelConfig
from .errors import ModelError
from .gguf_fields import Fields
from .layout import Shape
from .rope import RopeScaling
from .rotary import rotary_frequencies

FAMILIES: dict[str, Family] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3": "gemma3",
}
"""Our family by `general.architecture`."""

_GEMMA_PATTERN, _GEMMA_LOCAL_THETA = 6, 10000.0
"""What llama.cpp takes for granted: the file need not say it."""
_GEMMA_27B_LAYERS = 62
"""Of the one Gemma 3 whose scores are scaled by width / heads; the file doesn't say it either."""
_LLAMA3_CONTEXT = 8192
"""Context of all Llama 3 before it was stretched; the file holds only the stretched frequencies."""


def read_family(fields: Fields) -> Family:
    """The family of the file's architecture; ModelError for any other."""
    architecture = fields.text("general.architecture")
    if architecture not in FAMILIES:
        raise ModelError(
            f"{fields.path}: architecture {architecture!r} is not supported"
            f" (only {', '.join(FAMILIES)})"
        )
    return FAMILIES[architecture]


def read_shape(
    fields: Fields, shapes: Mapping[str, Shape], divisors: np.ndarray[Any, Any] | None
) -> ModelConfig:
    """The model's shape; `shapes` are those of the file's tensors, `divisors` [D/2] what Llama 3's
    `rope_freqs` divides frequencies by. ModelError for what is missing, impossible or unsupported.
    """
    family = read_family(fields)
    try:
        return _config(_Keys(fields, fields.text("general.architecture")), family, shapes, divisors)
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(f"{fields.path}: impossible shape: {error}") from error


class _Keys:
    """Metadata under the architecture's prefix."""

    def __init__(self, fields: Fields, architecture: str) -> None:
        self.fields, self._prefix = fields, architecture

    def integer(self, key: str, default: int | None = None) -> int:
        return self.fields.integer(f"{self._prefix}.{key}", default)

    def number(self, key: str, default: float | None = None) -> float:
        return self.fields.number(f"{self._prefix}.{key}", default)

    def get(self, key: str) -> Any:
        return self.fields.get(f"{self._prefix}.{key}")


def _config(
    keys: _Keys, family: Family, shapes: Mapping[str, Shape], divisors: np.ndarray[Any, Any] | None
) -> ModelConfig:
    width, layers = keys.integer("embedding_length"), keys.integer("block_count")
    heads = max(1, keys.integer("attention.head_count"))
    size = keys.integer(
        "attention.key_length", keys.integer("rope.dimension_count", width // heads)
    )
    if layers > len(shapes):
        raise ValueError(f"{layers} layers in {len(shapes)} tensors")
    if keys.integer("rope.dimension_count", size) != size:
        raise ValueError("only a part of each head is rotated, which is not supported")
    windowed = _windowed(keys, layers) if family == "gemma3" else ()
    theta = keys.number("rope.freq_base", 10000.0)
    return ModelConfig(
        family=family,
        vocabulary=len(keys.fields.items("tokenizer.ggml.tokens")),
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", heads),
        head_dim=size,
        ffn=keys.integer("feed_forward_length"),
        rope_theta=theta,
        rope=_stretched(theta, size, divisors) if divisors is not None else _scaling(keys),
        window=keys.integer("attention.sliding_window") if any(windowed) else None,
        windowed=windowed if any(windowed) else (),
        local_rope_theta=keys.number("rope.freq_base_swa", _GEMMA_LOCAL_THETA)
        if any(windowed)
        else None,
        query_scalar=_query_scalar(layers, width, heads, size) if family == "gemma3" else None,
        eps=keys.number("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in shapes,
        context=keys.integer("context_length"),
    )


def _query_scalar(layers: int, width: int, heads: int, size: int) -> float:
    return float(width // heads if layers == _GEMMA_27B_LAYERS else size)


def _windowed(keys: _Keys, layers: int) -> tuple[bool, ...]:
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return tuple(bool(flag) for flag in pattern)
    period = pattern if isinstance(pattern, int) and pattern > 0 else _GEMMA_PATTERN
    return tuple((layer + 1) % period != 0 for layer in range(layers))


def _scaling(keys: _Keys) -> RopeScaling | None:
    kind = keys.get("rope.scaling.type")
    if kind in (None, "none"):
        return None
    if kind not in ("linear", "yarn"):
        raise ValueError(f"rotary scaling {kind!r} is not supported (only linear, yarn)")
    for key in ("attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier"):
        if keys.get(f"rope.scaling.{key}") is not None:
            raise ValueError(f"rotary scaling with {key} is not supported")
    if kind == "linear":
        return RopeScaling(kind="linear", factor=keys.number("rope.scaling.factor"))
    return RopeScaling(
        kind="yarn",
        factor=keys.number("rope.scaling.factor"),
        original=keys.integer("rope.scaling.original_context_length"),
        beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _stretched(theta: float, size: int, divisors: np.ndarray[Any, Any]) -> RopeScaling:
    """Llama 3's scaling whose frequencies are the plain ones over `divisors`."""
    factor = float(f"{float(divisors.max()):.6g}")
    scaling = RopeScaling(kind="llama3", factor=factor, original=_LLAMA3_CONTEXT)
    expected = rotary_frequencies(theta, size) / rotary_frequencies(theta, size, scaling)
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-4):
        raise ValueError("rope_freqs is not Llama 3's, use the model's Hugging Face folder")
    return scaling
