"""The two models of the benchmark: shapes, weights, and the file that both sides read.

Both are of Qwen2's family, Llama's layers with biases on three projections: Tunix's Llama module
reads neither `rope_theta` nor packed sequences, its Qwen2 module both.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import Params, init_params

SHAPES = {
    "tiny": ModelConfig(
        family="qwen2",
        vocabulary=2048,
        width=128,
        layers=4,
        heads=4,
        kv_heads=2,
        head_dim=32,
        ffn=384,
    ),
    "smollm2": ModelConfig(
        family="qwen2",
        vocabulary=49152,
        width=576,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        ffn=1536,
        rope_theta=1e5,
    ),
}
"""`smollm2` has SmolLM2-135M's sizes."""


def write_model(name: str, folder: Path) -> ModelConfig:
    """Draw weights for `name` and write them, flat, with their shape."""
    model = SHAPES[name]
    arrays: dict[str, Any] = _flat(init_params(model, 0))
    np.savez(folder / "weights.npz", **arrays)
    (folder / "model.json").write_text(json.dumps(asdict(model)))
    return model


def read_model(folder: Path) -> tuple[ModelConfig, Params]:
    """What `write_model` wrote."""
    held = json.loads((folder / "model.json").read_text())
    held["windowed"] = tuple(held["windowed"])
    params: Params = {"layers": {}}
    with np.load(folder / "weights.npz") as stored:
        for name in stored.files:
            inner = name.removeprefix("layers.")
            (params if inner == name else params["layers"])[inner] = stored[name]
    return ModelConfig(**held), params


def _flat(params: Params) -> dict[str, npt.NDArray[Any]]:
    """Arrays by name; those of all layers at once begin with `layers.`."""
    layers = {f"layers.{name}": array for name, array in params["layers"].items()}
    outside = {name: array for name, array in params.items() if name != "layers"}
    return {name: np.asarray(array) for name, array in (layers | outside).items()}
