"""Writes a model as a Hugging Face folder, which vLLM and others load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.hf_describe import describe_config
from patchgym.trainer.model.tokenizer import Tokenizer

if TYPE_CHECKING:
    from patchgym.trainer.model.decoder import Params

    from .files import Precision


SHARD_BYTES = 5_000_000_000
"""Of one file of weights; larger models are written as several, with an index."""


def export_folder(
    config: ModelConfig,
    params: Params,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    precision: Precision = "float32",
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write config.json, model.safetensors, tokenizer.json, tokenizer_config.json; blocks.

    Weights of more than `shard_bytes` become several files. `folder` is made when missing; files of
    these names are replaced, and weights of an earlier export removed. `load_folder` reads the same
    model back, in float32 bit for bit. ValueError when `params` aren't the weights of `config`, or
    when its family's files have no words for it.
    """
    from .shards import write_shards

    described = describe_config(config) | {
        "eos_token_id": tokenizer.end_of_turn,
        "dtype": precision,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_shards(config, params, folder, precision=precision, limit=shard_bytes)
    ends = sorted(tokenizer.end_ids, key=lambda token: token != tokenizer.end_of_turn)
    _write_json(folder / "config.json", described)
    # The ids that end a turn, and no sampling defaults: these would bias the learner.
    _write_json(folder / "generation_config.json", {"eos_token_id": ends})
    _write_tokenizer(tokenizer, config, folder)


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
