"""Writes adapters as a PEFT folder, which PEFT and vLLM load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from patchgym.agent.policies.tensor_files import Shapes, difference
from patchgym.trainer.model.config import ModelConfig

from .config import LoraConfig, adapter_shapes
from .layout import CONFIG, TENSORS, modules, places

if TYPE_CHECKING:
    from patchgym.trainer.weights.files import Precision

    from .adapters import Adapters


def export_peft(
    folder: Path,
    config: LoraConfig,
    adapters: Adapters,
    model: ModelConfig,
    base_name: str,
    *,
    precision: Precision = "float32",
) -> None:
    """Write `adapters` of `model` to `folder` in PEFT's format; blocks.

    `base_name` says which model they belong to: a folder, or a name on a hub. `folder` is made when
    missing, files of these names are replaced. Each file appears whole, `adapter_config.json` last:
    a folder without one isn't finished. ValueError, and nothing written, when the adapters aren't
    those of `config` and `model`.
    """
    from patchgym.trainer.weights.files import in_precision, save_tensors, scratch_file

    _check(config, adapters, model)
    here = {
        target: {s: np.asarray(x) for s, x in pair.items()} for target, pair in adapters.items()
    }
    tensors = {
        name: in_precision(here[place.target][place.side][place.layer].T, precision)
        for name, place in places(config, model).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    scratch = scratch_file(folder / CONFIG)
    described = json.dumps(_described(config, model, base_name), indent=1) + "\n"
    try:
        scratch.write_text(described, encoding="utf-8")
        (folder / CONFIG).unlink(missing_ok=True)  # never one adapter's settings, another's tensors
        save_tensors(tensors, folder / TENSORS)
        scratch.replace(folder / CONFIG)
    finally:
        scratch.unlink(missing_ok=True)


def _check(config: LoraConfig, adapters: Adapters, model: ModelConfig) -> None:
    wanted: Shapes = {}
    for target, (a, b) in adapter_shapes(config, model).items():
        wanted |= {f"{target}.A": a, f"{target}.B": b}
    found = {
        f"{t}.{side}": tuple(x.shape) for t, pair in adapters.items() for side, x in pair.items()
    }
    if wrong := difference(wanted, found):
        raise ValueError(f"these are not the adapters of the model: {wrong}")


def _described(config: LoraConfig, model: ModelConfig, base_name: str) -> dict[str, Any]:
    names = modules(model)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "inference_mode": True,
        "r": config.rank,
        "lora_alpha": int(config.alpha) if config.alpha == int(config.alpha) else config.alpha,
        "lora_dropout": 0.0,
        "target_modules": [names[t].rpartition(".")[2] for t in adapter_shapes(config, model)],
        "bias": "none",
        "use_rslora": False,
        "use_dora": False,
    }
