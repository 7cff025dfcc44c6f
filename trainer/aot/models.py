"""Models by name, from their public configurations, or from a folder in Hugging Face's format."""

from __future__ import annotations

from pathlib import Path

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.hf_config import read_config


def _coder(*, width: int, layers: int, heads: int, kv_heads: int, ffn: int) -> ModelConfig:
    """A Qwen2.5-Coder of the larger sizes."""
    return ModelConfig(
        family="qwen2",
        vocabulary=152064,
        width=width,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        ffn=ffn,
        rope_theta=1e6,
        eps=1e-6,
        tied=False,
        context=32768,
    )


PRESETS = {
    "qwen2.5-coder-7b": _coder(width=3584, layers=28, heads=28, kv_heads=4, ffn=18944),
    "qwen2.5-coder-32b": _coder(width=5120, layers=64, heads=40, kv_heads=8, ffn=27648),
}
"""Shapes by name."""


def model_of(name: str) -> ModelConfig:
    """The shape of a preset, or of the model whose `config.json` lies in the folder `name`.

    Raises ValueError for what is neither; ModelError for a configuration that can't be used.
    """
    if name in PRESETS:
        return PRESETS[name]
    file = Path(name) / "config.json"
    if not file.is_file():
        raise ValueError(
            f"model {name!r} is neither {' nor '.join(PRESETS)} nor a folder with a config.json"
        )
    return read_config(file)
