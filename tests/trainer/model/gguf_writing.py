"""Writes GGUF files as llama.cpp's converter does, with names from the `gguf` package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from tiny_model import byte_tokenizer

from patchgym.trainer.model import ModelConfig
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.model.rotary import rotary_frequencies
from patchgym.trainer.weights.names import hugging_face_tensors


def write_gguf(
    path: Path, config: ModelConfig, params: Params, *, architecture: str | None = None
) -> None:
    """A GGUF of a byte-level tokenizer and `params`, under `architecture` or the family's own."""
    writer = gguf.GGUFWriter(str(path), architecture or config.family)
    _write_shape(writer, config)
    _write_tokenizer(writer, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.family.upper()], config.layers)
    for name, array in hugging_face_tensors(config, params):
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None
        writer.add_tensor(theirs, _converted(config, theirs, np.array(array)))
    if config.rope is not None and config.rope.kind == "llama3":
        plain = rotary_frequencies(config.rope_theta, config.head_dim)
        stretched = rotary_frequencies(config.rope_theta, config.head_dim, config.rope)
        writer.add_tensor("rope_freqs.weight", (plain / stretched).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _converted(
    config: ModelConfig, name: str, array: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}
    part = name.split(".")[-2]
    if config.family == "llama" and part in heads:  # the rows of a head's halves alternate
        halves = array.reshape(heads[part], 2, -1, config.width)
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
    if config.family == "gemma3" and name.endswith("norm.weight"):
        return array + np.float32(1)
    return np.ascontiguousarray(array)


def _write_shape(writer: Any, config: ModelConfig) -> None:
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.eps)
    if config.family in ("qwen3", "gemma3"):
        writer.add_key_length(config.head_dim)
    elif config.family == "llama":
        writer.add_rope_dimension_count(config.head_dim)
    if config.window is not None:
        writer.add_sliding_window(config.window)
    if config.rope is not None and config.rope.kind != "llama3":
        writer.add_rope_scaling_type(gguf.RopeScalingType(config.rope.kind))
        writer.add_rope_scaling_factor(config.rope.factor)
        if config.rope.kind == "yarn":
            writer.add_rope_scaling_orig_ctx_len(config.rope.original)


def _write_tokenizer(writer: Any, config: ModelConfig) -> None:
    backend = byte_tokenizer()._backend
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([backend.id_to_token(i) or "" for i in range(config.vocabulary)])
    writer.add_token_types([3] * 3 + [1] * (config.vocabulary - 3))
    writer.add_token_merges(["i n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
