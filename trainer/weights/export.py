"""Writes a model as a Hugging Face folder, which vLLM and others load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from patchgym.trainer.model.decoder import Params

    from .files import Precision


def export_folder(
    config: ModelConfig,
    params: Params,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    precision: Precision = "float32",
) -> None:
    """Write config.json, model.safetensors, tokenizer.json, tokenizer_config.json; blocks.

    `folder` is made when missing; files of these names are replaced. `load_folder` reads the same
    model back, in float32 bit for bit. ValueError when `params` aren't the weights of `config`.
    """
    from .files import write_weights

    folder.mkdir(parents=True, exist_ok=True)
    write_weights(config, params, folder / "model.safetensors", precision=precision)
    ends = sorted(tokenizer.end_ids, key=lambda token: token != tokenizer.end_of_turn)
    _write_json(folder / "config.json", _configuration(config, tokenizer, precision))
    # The ids that end a turn, and no sampling defaults: these would bias the learner.
    _write_json(folder / "generation_config.json", {"eos_token_id": ends})
    _write_tokenizer(tokenizer, config, folder)


def _configuration(config: ModelConfig, tokenizer: Tokenizer, precision: str) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn,
        "rms_norm_eps": config.eps,
        # Both spellings: readers before and after the change of name.
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "max_position_embeddings": config.context,
        "tie_word_embeddings": config.tied,
        "attention_bias": False,
        "mlp_bias": False,
        "eos_token_id": tokenizer.end_of_turn,
        "dtype": precision,
    }


def _write_tokenizer(tokenizer: Tokenizer, config: ModelConfig, folder: Path) -> None:
    # The tokenizer keeps these to itself; writing it out is this module's only use of them.
    (folder / "tokenizer.json").write_text(tokenizer._backend.to_str(), encoding="utf-8")
    names = tokenizer._variables
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": names["eos_token"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.context,
    }
    if names["bos_token"]:
        settings["bos_token"] = names["bos_token"]
    if tokenizer._template is not None:
        settings["chat_template"] = tokenizer._template.text
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
