"""Tokenizers by path, without any weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.agent.chat import ChatTokenizer
from patchgym.datasets.cache import cache_dir
from patchgym.trainer.errors import UserError

if TYPE_CHECKING:
    from patchgym.trainer.model.tokenizer import Tokenizer

BUNDLED_MODEL = "smollm2-135m-instruct"

_PROBE = "def f(x):\n\treturn {'a': x + 12345}  # na\u00efve \u4f60\u597d \U0001f600 <tool_call>\n"


def model_path(name: str) -> Path:
    """Where the model lies that a configuration names; fetched on the first call. Blocks."""
    from patchgym.trainer.model.weights import ensure_weights

    return ensure_weights(cache_dir()) if name.lower() == BUNDLED_MODEL else Path(name)


def load_chat_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a Hugging Face folder, a GGUF file or the bundled model. Blocks.

    Raises ModelError, or UserError when there is nothing of that name.
    """
    path = model_path(name)
    if path.is_dir():
        from patchgym.trainer.model.tokenizer import load_tokenizer

        return load_tokenizer(path)
    if not path.is_file():
        raise UserError(
            f"--tokenizer {name}: no such file; give a Hugging Face folder, a GGUF file, "
            f"or {BUNDLED_MODEL}"
        )
    from patchgym.trainer.model.gguf import load_vocabulary

    return load_vocabulary(path)


def fingerprint(tokenizer: ChatTokenizer) -> str:
    """Names a tokenizer by what it does: equal for equal ids of a probe, ends and control tokens.

    Tells one vocabulary from another; it is no proof that two are the same in every word.
    """
    known = (
        tokenizer.encode(_PROBE),
        sorted(tokenizer.end_ids),
        [(token, tokenizer.encode(token)) for token in sorted(tokenizer.control_tokens())[:4096]],
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]
