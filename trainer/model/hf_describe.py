"""`ModelConfig` to Hugging Face's `config.json`: `hf_config`, turned around."""

from __future__ import annotations

from typing import Any

from .config import Family, ModelConfig
from .hf_rope import write_rope

_NAMES: dict[Family, tuple[str, str]] = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
}
"""`model_type` and architecture by family."""


def describe_config(config: ModelConfig) -> dict[str, Any]:
    """What describes `config` to Hugging Face's and vLLM's readers; no token ids, no type.

    ValueError for a shape that the family's own configuration has no words for.
    """
    kind, architecture = _NAMES[config.family]
    return {
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn,
        "rms_norm_eps": config.eps,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": config.tied,
        **write_rope(config),
        **_family(config),
    }


def _family(config: ModelConfig) -> dict[str, Any]:
    """The keys that only this family has."""
    if config.family != "gemma3" and (config.query_scalar or config.local_rope_theta):
        raise ValueError(f"a {config.family} has no query_scalar and no local_rope_theta")
    if config.family == "llama":
        if config.window is not None:
            raise ValueError("a llama has no windowed layers")
        return {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
    if config.family == "gemma3":
        return _gemma(config)
    bias = {"attention_bias": False} if config.family == "qwen3" else {}
    return {"hidden_act": "silu", **bias, **_windows(config)}


def _gemma(config: ModelConfig) -> dict[str, Any]:
    scalar = config.query_scalar or config.head_dim
    if scalar != int(scalar):
        raise ValueError(f"query_scalar={scalar} must be a whole number in a Gemma's files")
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": int(scalar),
        "sliding_window": config.window,
        "layer_types": _layer_types(config),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "attention_bias": False,
    }


def _windows(config: ModelConfig) -> dict[str, Any]:
    """Qwen's words for windowed layers: all from one layer on."""
    flags = config.windowed or (False,) * config.layers
    first = flags.index(True) if True in flags else config.layers
    if not all(flags[first:]):
        raise ValueError("a Qwen's windowed layers are all from one layer on")
    return {
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": first,
        "layer_types": _layer_types(config),
    }


def _layer_types(config: ModelConfig) -> list[str]:
    flags = config.windowed or (False,) * config.layers
    return ["sliding_attention" if flag else "full_attention" for flag in flags]
