"""A model's weights in several safetensors files with an index, as large models are published."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.agent.policies.tensor_files import Shapes, difference
from patchgym.trainer.model.config import ModelConfig

from .files import Precision, in_precision, save_tensors, scratch_file, write_weights
from .names import hugging_face_shapes, hugging_face_tensors

if TYPE_CHECKING:
    from patchgym.trainer.model.decoder import Params


WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"

_OURS = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_BYTES: dict[Precision, int] = {"float32": 4, "bfloat16": 2}


def plan_shards(shapes: Shapes, item: int, limit: int) -> list[list[str]]:
    """Names of `shapes`, in order, for each file of at most `limit` bytes at `item` bytes a value.

    A tensor larger than that has a file of its own.
    """
    shards: list[list[str]] = []
    room = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * item
        if size > room:
            shards.append([])
            room = limit
        shards[-1].append(name)
        room -= size
    return shards


def write_shards(
    config: ModelConfig, params: Params, folder: Path, *, precision: Precision, limit: int
) -> None:
    """Write `params` to `folder`: one `model.safetensors`, or shards of `limit` bytes; blocks.

    Holds one shard in memory. Each file is written beside its place and renamed; files of another
    division are removed at the end. ValueError when `params` aren't the weights of `config`.
    """
    shards = plan_shards(hugging_face_shapes(config), _BYTES[precision], limit)
    if len(shards) == 1:
        write_weights(config, params, folder / WHOLE, precision=precision)
        _remove_others(folder, {WHOLE})
        return
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    _write_all(config, params, folder, dict(zip(names, shards, strict=True)), precision)
    places = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
    size = sum(math.prod(s) for s in hugging_face_shapes(config).values()) * _BYTES[precision]
    index = {"metadata": {"total_size": size}, "weight_map": places}
    scratch = scratch_file(folder / INDEX)
    scratch.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    scratch.replace(folder / INDEX)
    _remove_others(folder, {*names, INDEX})


def _write_all(
    config: ModelConfig,
    params: Params,
    folder: Path,
    shards: dict[str, list[str]],
    precision: Precision,
) -> None:
    """One file a shard, its tensors taken in the order in which they are made."""
    _check(config, params)
    tensors = hugging_face_tensors(config, params)
    for file, names in shards.items():
        arrays = {name: in_precision(next(tensors)[1], precision) for name in names}
        save_tensors(arrays, folder / file)


def _check(config: ModelConfig, params: Params) -> None:
    import jax

    def made(given: Params) -> dict[str, Any]:
        return dict(hugging_face_tensors(config, given))

    found = {name: leaf.shape for name, leaf in jax.eval_shape(made, params).items()}
    if wrong := difference(hugging_face_shapes(config), found):
        raise ValueError(f"these are not the weights of the model: {wrong}")


def _remove_others(folder: Path, kept: set[str]) -> None:
    """Remove weights of an earlier export: a reader would take them for this model's."""
    for file in folder.iterdir():
        if _OURS.fullmatch(file.name) and file.name not in kept:
            file.unlink()
