"""Names and shapes in safetensors files, read from their headers alone and without a library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

Shapes: TypeAlias = dict[str, tuple[int, ...]]
"""Shape of each tensor by its name."""

_HEADER_LIMIT = 100 << 20
"""Bytes; what the format allows a header to take."""


def file_shapes(file: Path) -> Shapes:
    """Shapes of the tensors in one file; ValueError when it is damaged or cut short."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
            raise ValueError(f"{file}: not a safetensors file")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if 8 + length + end != size:
        raise ValueError(f"{file}: cut short: {size} bytes, its header says {8 + length + end}")
    return {name: tuple(entry["shape"]) for name, entry in header.items()}


def folder_shapes(folder: Path) -> Shapes:
    """Shapes of the tensors in all safetensors files of a model's folder; none when it has none."""
    shapes: Shapes = {}
    for file in sorted(folder.glob("*.safetensors")):
        shapes |= file_shapes(file)
    return shapes


def difference(wanted: Shapes, found: Shapes) -> str:
    """What is wrong with `found` in one line; empty when names and shapes are as `wanted`."""
    if missing := sorted(wanted.keys() - found.keys()):
        return f"{len(missing)} tensors are missing, {missing[0]} among them"
    if strange := sorted(found.keys() - wanted.keys()):
        return f"{len(strange)} tensors are unknown to the model, {strange[0]} among them"
    for name, shape in wanted.items():
        if found[name] != shape:
            return f"{name} has shape {found[name]}, the model's is {shape}"
    return ""
