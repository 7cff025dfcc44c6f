"""Opens a model wherever it lies: a GGUF file or a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .config import ModelConfig
from .errors import ModelError
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .decoder import Params


def load_model(path: Path) -> tuple[ModelConfig, Params, Tokenizer]:
    """Shape, float32 weights and tokenizer of the model at `path`.

    `path` is a `.gguf` file or a Hugging Face folder. Raises ModelError in one line otherwise.
    """
    # Both readers import JAX; naming the package does not.
    if path.is_dir():
        from .safetensors import load_folder

        return load_folder(path)
    if not path.exists():
        raise ModelError(f"{path}: no such model; give a .gguf file or a Hugging Face folder")
    from .gguf import load_gguf

    return load_gguf(path)
