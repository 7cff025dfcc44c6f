"""A Hugging Face folder with a tokenizer of bytes: no weights, no download."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_model import CONTROL, TEMPLATE

from patchgym.trainer.model.tokenizer import BYTE_OF_LETTER, byte_level_bpe


def write_tokenizer(folder: Path, template: str = TEMPLATE) -> Path:
    """A folder that `load_tokenizer` reads: one token a byte, ChatML's control tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = byte_level_bpe(
        tokens=[*CONTROL, *BYTE_OF_LETTER, "in"], merges=[("i", "n")], control=CONTROL
    )
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
