"""Reads adapters from a PEFT folder, whoever wrote it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from patchgym.agent.policies.tensor_files import difference
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.errors import ModelError

from .config import TARGETS, LoraConfig, adapter_shapes
from .layout import CONFIG, TENSORS, modules, places

if TYPE_CHECKING:
    from .adapters import Adapters

_NAME = re.compile(r"base_model\.model\.model\.layers\.\d+\.([\w.]+)\.lora_[AB]\.weight")

_ALLOWED: dict[str, tuple[object, ...]] = {
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
}
"""Settings whose other values make another model, or need other base weights: PiSSA, LoftQ."""

_UNKNOWN_HERE = (
    "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias", "target_parameters",
    "layer_replication", "trainable_token_indices", "alora_invocation_tokens", "arrow_config",
    "kasa_config", "velora_config", "monteclora_config",
)  # fmt: skip
"""Settings that make another model than W + (alpha / r) A B whenever they are set, as does any
`use_...`: DoRA, rsLoRA."""

_FLOATS = ("float32", "float16", "bfloat16", "float64")

_Tensors = Mapping[str, npt.NDArray[Any]]


def load_peft(folder: Path, model: ModelConfig) -> tuple[LoraConfig, Adapters]:
    """Configuration and adapters (NumPy, float32) of a PEFT folder made for `model`; blocks.

    Reads tensors of any floating type. ModelError, naming the file and what to do, for a file that
    is missing or damaged, for a kind of adapter that isn't trained here, and for adapters of
    another model.
    """
    settings = _settings(folder / CONFIG)
    tensors = _read(folder / TENSORS)
    _check_kind(folder / CONFIG, settings)
    config = _config(folder, settings, tensors, model)
    _check_shapes(folder / TENSORS, config, tensors, model, settings.get("base_model_name_or_path"))
    adapters: Adapters = {
        target: {"A": np.empty(a, np.float32), "B": np.empty(b, np.float32)}
        for target, (a, b) in adapter_shapes(config, model).items()
    }
    for name, place in places(config, model).items():
        adapters[place.target][place.side][place.layer] = tensors[name].T
    return config, adapters


def _settings(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{file}: no such file; give the folder of a PEFT adapter") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: can't be read ({error}); save the adapter again") from None
    if not isinstance(settings, dict):
        raise ModelError(f"{file}: it holds no settings; save the adapter again")
    return settings


def _read(file: Path) -> _Tensors:
    import jax.numpy  # noqa: F401  (it makes bfloat16 known to NumPy)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}
    except FileNotFoundError:
        raise ModelError(
            f"{file}: no such file; adapters saved as adapter_model.bin must be saved again as"
            " safetensors"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{file}: damaged ({error}); save the adapter again") from None
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _FLOATS:
            raise ModelError(f"{file}: {name} is of type {tensor.dtype.name}; save it unquantized")
    return tensors


def _check_kind(file: Path, settings: Mapping[str, Any]) -> None:
    """ModelError when the adapter is more than W + (alpha / r) A B."""
    if settings.get("peft_type") != "LORA":
        raise ModelError(f"{file}: peft_type is {settings.get('peft_type')!r}; only LORA is read")
    for key, value in settings.items():
        special = key in _UNKNOWN_HERE or key.startswith("use_")
        if (special and value) or value not in _ALLOWED.get(key, (value,)):
            raise ModelError(
                f"{file}: {key} is {value!r}, a kind of adapter that isn't trained here; give a"
                " plain LoRA"
            )


def _config(
    folder: Path, settings: Mapping[str, Any], tensors: _Tensors, model: ModelConfig
) -> LoraConfig:
    """What the adapter was trained with; the targets are those that have tensors."""
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1:
        raise ModelError(f"{folder / CONFIG}: r is {rank!r}: it must be 1 or more")
    if not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise ModelError(f"{folder / CONFIG}: lora_alpha is {alpha!r}: it must be above 0")
    names = {module: target for target, module in modules(model).items()}
    found: set[str] = set()
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match is None or match[1] not in names:
            raise ModelError(
                f"{folder / TENSORS}: {name} is of no target that is trained here"
                f" ({', '.join(names)}); give an adapter of these alone"
            )
        _check_rank(folder / TENSORS, name, tensor.shape, rank)
        found.add(names[match[1]])
    if not found:
        raise ModelError(f"{folder / TENSORS}: it holds no tensors; save the adapter again")
    return LoraConfig(rank=rank, alpha=alpha, targets=tuple(t for t in TARGETS if t in found))


def _check_rank(file: Path, name: str, shape: tuple[int, ...], rank: int) -> None:
    """ModelError unless `shape` is [r, in] of an A or [out, r] of a B."""
    if len(shape) != 2:
        raise ModelError(f"{file}: {name} has shape {shape}, no matrix; save the adapter again")
    saved = shape[0] if name.endswith("lora_A.weight") else shape[1]
    if saved != rank:
        raise ModelError(
            f"{file}: {name} has rank {saved}, {CONFIG} says r = {rank}; save the adapter again"
        )


def _check_shapes(
    file: Path, config: LoraConfig, tensors: _Tensors, model: ModelConfig, base: str | None
) -> None:
    wanted = {name: place.shape for name, place in places(config, model).items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if wrong := difference(wanted, found):
        raise ModelError(
            f"{file}: {wrong} (a {model.family} of {model.layers} layers, width {model.width});"
            f" the adapter was made for {base or 'a model that it does not name'}"
        )
