"""Hugging Face's `config.json` to `ModelConfig`: what is read, and what is refused by its key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import Family, ModelConfig
from .errors import ModelError
from .hf_rope import Rope, read_rope

FAMILIES: dict[str, Family] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
}
"""Our family by Hugging Face's `model_type`."""

_HINTS = {
    "gemma3": "; this is Gemma 3 with its image tower, only its text models can be used",
}

_ONLY: dict[str, tuple[object, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "use_bidirectional_attention": (None, False),
    "use_mrope": (None, False),
    "partial_rotary_factor": (None, 1.0),
    "quantization_config": (None,),
}
"""Keys that change what a model computes, and the values that our decoder is right for."""

_GEMMA_PATTERN = 6
"""Every sixth of Gemma 3's layers sees everything, unless the configuration says otherwise."""


def read_config(file: Path) -> ModelConfig:
    """The shape that the `config.json` at `file` describes.

    Raises ModelError, in one line that names the file and the key, for what is damaged or would be
    computed differently.
    """
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: can't be read as JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelError(f"{file}: not a JSON object")
    try:
        family = _family(values)
        _refuse_variants(values, family)
        return _config(values, family)
    except _Refused as error:
        raise ModelError(f"{file}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{file}: impossible configuration: {error}") from error


class _Refused(Exception):
    """What `config.json` asks for and can't have, in words."""


def _family(values: Mapping[str, Any]) -> Family:
    kind = values.get("model_type")
    if kind not in FAMILIES:
        hint = _HINTS.get(str(kind), "")
        raise _Refused(f"model_type {kind!r} is not supported (only {', '.join(FAMILIES)}){hint}")
    return FAMILIES[kind]


def _refuse_variants(values: Mapping[str, Any], family: Family) -> None:
    for key, allowed in _ONLY.items():
        if values.get(key) not in allowed:
            raise _Refused(f"{key}={_short(values[key])} is not supported (only {allowed[-1]})")
    key, wanted = "hidden_act", "silu"
    if family == "gemma3":
        key, wanted = "hidden_activation", "gelu_pytorch_tanh"
    if values.get(key, wanted) not in (wanted, None):
        raise _Refused(f"activation {values[key]!r} is not supported (only {wanted})")


def _config(values: Mapping[str, Any], family: Family) -> ModelConfig:
    heads, layers = _integer(values, "num_attention_heads"), _integer(values, "num_hidden_layers")
    width = _integer(values, "hidden_size")
    windowed = _windowed(values, family, layers)
    rope = _rope(values, family, any(windowed))
    return ModelConfig(
        family=family,
        vocabulary=_integer(values, "vocab_size"),
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=_integer(values, "num_key_value_heads", heads),
        head_dim=_integer(values, "head_dim", width // max(heads, 1)),
        ffn=_integer(values, "intermediate_size"),
        rope_theta=rope.theta,
        rope=rope.scaling,
        window=_integer(values, "sliding_window") if any(windowed) else None,
        windowed=windowed if any(windowed) else (),
        local_rope_theta=rope.local_theta,
        query_scalar=_number(values, "query_pre_attn_scalar") if family == "gemma3" else None,
        eps=_number(values, "rms_norm_eps"),
        # Written only where it differs from the default, which is true of Gemma alone.
        tied=bool(values.get("tie_word_embeddings", family == "gemma3")),
        context=_integer(values, "max_position_embeddings", 2048),
    )


def _rope(values: Mapping[str, Any], family: Family, windows: bool) -> Rope:
    try:
        return read_rope(values, gemma=family == "gemma3", windows=windows)
    except ValueError as error:
        raise _Refused(str(error)) from error


def _windowed(values: Mapping[str, Any], family: Family, layers: int) -> tuple[bool, ...]:
    """Which layers see only a window."""
    if family == "llama":
        return (False,) * layers
    kinds = values.get("layer_types")
    if kinds is not None:
        for kind in kinds:
            if kind not in ("full_attention", "sliding_attention"):
                raise _Refused(f"layer_types has {kind!r}, which is not supported")
        flags = tuple(kind == "sliding_attention" for kind in kinds)
        if any(flags) and family != "gemma3" and not values.get("use_sliding_window"):
            raise _Refused("layer_types has windows, but use_sliding_window=false; correct one")
        return flags
    if family == "gemma3":
        pattern = max(1, _integer(values, "sliding_window_pattern", _GEMMA_PATTERN))
        return tuple((layer + 1) % pattern != 0 for layer in range(layers))
    if not values.get("use_sliding_window") or values.get("sliding_window") is None:
        return (False,) * layers
    first = _integer(values, "max_window_layers")
    return tuple(layer >= first for layer in range(layers))


def _integer(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = _given(values, key, default)
    if not isinstance(value, int):
        raise _Refused(f"no usable value for {key}: {_short(value)} is no whole number")
    return value


def _number(values: Mapping[str, Any], key: str) -> float:
    value = _given(values, key, None)
    if not isinstance(value, int | float):
        raise _Refused(f"no usable value for {key}: {_short(value)} is no number")
    return float(value)


def _given(values: Mapping[str, Any], key: str, default: int | None) -> object:
    value = values.get(key)
    return default if value is None else value


def _short(value: object) -> str:
    """`value` as JSON of at most sixty characters."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
