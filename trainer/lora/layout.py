"""PEFT's names: files, modules, and the tensor of each target, side and layer.

For layer N and the query, `base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight` [r, in]
and `...lora_B.weight` [out, r]: the transposes of ours. All families have the same names.
"""

from __future__ import annotations

from typing import NamedTuple

from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.layout import Shape, layer_tensors, tensor_name

from .config import TARGETS, LoraConfig, adapter_shapes

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
"""The two files of a folder."""

ROOT = "base_model.model."
"""What PEFT puts before Hugging Face's names."""


class Place(NamedTuple):
    """Where a tensor of PEFT's lies in the adapters, and its shape there."""

    target: str
    """One of `TARGETS`."""
    side: str
    """`A` or `B`."""
    layer: int
    """From 0."""
    shape: Shape
    """PEFT's: [r, in] or [out, r]."""


def modules(model: ModelConfig) -> dict[str, str]:
    """Hugging Face's name of each target within a layer, such as `self_attn.q_proj`."""
    names = layer_tensors(model)
    return {target: names[target].removesuffix(".weight") for target in TARGETS}


def places(config: LoraConfig, model: ModelConfig) -> dict[str, Place]:
    """Where each of PEFT's tensors belongs, by its name; ValueError without a rank."""
    names = modules(model)
    return {
        f"{ROOT}{tensor_name(layer, names[target])}.lora_{side}.weight": Place(
            target, side, layer, shape[:0:-1]
        )
        for layer in range(model.layers)
        for target, (a, b) in adapter_shapes(config, model).items()
        for side, shape in (("A", a), ("B", b))
    }
