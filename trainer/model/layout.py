"""Which weights a decoder has: our names, Hugging Face's names, and their shapes.

Hugging Face keeps matrices [out, in], one tensor a layer; we keep them [in, out], layers stacked.
"""

from __future__ import annotations

from .config import ModelConfig

Shape = tuple[int, ...]

EMBED, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
"""Hugging Face's names of what is outside the layers."""

_LLAMA = {
    "attention_norm": "input_layernorm.weight",
    "query": "self_attn.q_proj.weight",
    "key": "self_attn.k_proj.weight",
    "value": "self_attn.v_proj.weight",
    "output": "self_attn.o_proj.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
_BIASES = {
    "query_bias": "self_attn.q_proj.bias",
    "key_bias": "self_attn.k_proj.bias",
    "value_bias": "self_attn.v_proj.bias",
}
_HEAD_NORMS = {
    "query_norm": "self_attn.q_norm.weight",
    "key_norm": "self_attn.k_norm.weight",
}
_FOUR_NORMS = {
    "after_attention_norm": "post_attention_layernorm.weight",
    "mlp_norm": "pre_feedforward_layernorm.weight",
    "after_mlp_norm": "post_feedforward_layernorm.weight",
}


def layer_tensors(config: ModelConfig) -> dict[str, str]:
    """Our name of each of a layer's weights, and Hugging Face's within `model.layers.<i>.`."""
    parts = config.parts
    return (
        _LLAMA
        | (_BIASES if parts.biases else {})
        | (_HEAD_NORMS if parts.head_norms else {})
        | (_FOUR_NORMS if parts.post_norms else {})
    )


def tensor_name(layer: int, theirs: str) -> str:
    """Hugging Face's whole name of a layer's weight."""
    return f"model.layers.{layer}.{theirs}"


def layer_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Shape of each of a layer's weights in Hugging Face's files, by our name."""
    width, ffn, size = config.width, config.ffn, config.head_dim
    inner, kv = config.heads * size, config.kv_heads * size
    known: dict[str, Shape] = {
        "attention_norm": (width,),
        "query": (inner, width),
        "key": (kv, width),
        "value": (kv, width),
        "output": (width, inner),
        "mlp_norm": (width,),
        "gate": (ffn, width),
        "up": (ffn, width),
        "down": (width, ffn),
        "query_bias": (inner,),
        "key_bias": (kv,),
        "value_bias": (kv,),
        "query_norm": (size,),
        "key_norm": (size,),
        "after_attention_norm": (width,),
        "after_mlp_norm": (width,),
    }
    return {ours: known[ours] for ours in layer_tensors(config)}


def tensor_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Name and shape of every tensor in Hugging Face's files of such a model, in order."""
    names, layer = layer_tensors(config), layer_shapes(config)
    shapes: dict[str, Shape] = {EMBED: (config.vocabulary, config.width)}
    for index in range(config.layers):
        shapes |= {tensor_name(index, names[ours]): layer[ours] for ours in names}
    shapes[NORM] = (config.width,)
    if not config.tied:
        shapes[HEAD] = (config.vocabulary, config.width)
    return shapes
