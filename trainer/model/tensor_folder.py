"""The tensors of a Hugging Face folder, read lazily: only the bytes of what is asked for.

The format: eight bytes of length, a JSON header with type, shape and place of each tensor, data.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .errors import ModelError
from .layout import Shape

INDEX = "model.safetensors.index.json"

_TYPES: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": jnp.bfloat16}
_HEADER_LIMIT = 100 << 20
"""Bytes; what the format allows a header to take."""
_SHARD = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")

Index = tuple[slice, ...]
"""One slice an axis, of step 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where one tensor lies."""

    file: Path
    """The safetensors file."""
    start: int
    """First byte in the file."""
    shape: Shape
    """Sizes of its one or two axes; the last one is contiguous."""
    dtype: np.dtype[Any]
    """float32, float16 or bfloat16."""


class TensorFolder:
    """All tensors of a folder; opening it reads the headers alone."""

    def __init__(self, folder: Path) -> None:
        """ModelError, naming the file, for one that is missing or damaged."""
        self._tensors: dict[str, StoredTensor] = {}
        for file in _files(folder):
            self._tensors |= _header(file)
        for name, file in _index(folder).items():
            if name not in self._tensors:
                raise ModelError(f"{file}: tensor {name} of {INDEX} is not in it; fetch it again")

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Shape of each tensor by its name."""
        return {name: stored.shape for name, stored in self._tensors.items()}

    def read(self, name: str, index: Index | None = None) -> npt.NDArray[Any]:
        """The part `index` of a tensor (all of it by default) in its stored type.

        Reads the bytes of that part and no others. KeyError when there is no such tensor.
        """
        stored = self._tensors[name]
        places = index or (slice(None),) * len(stored.shape)
        pairs = [place.indices(size)[:2] for place, size in zip(places, stored.shape, strict=True)]
        part = np.empty([stop - start for start, stop in pairs], stored.dtype)
        flat = part.reshape(-1).view(np.uint8)
        with stored.file.open("rb", buffering=0) as file:
            done = 0
            for start, count in _runs(stored, pairs):
                _fill(file.fileno(), flat[done : done + count].data, start, stored.file)
                done += count
        return part

    def read_float32(self, name: str) -> npt.NDArray[np.float32]:
        """The whole tensor in float32."""
        return self.read(name).astype(np.float32, copy=False)


def _runs(stored: StoredTensor, pairs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """First byte and count of each contiguous piece of a part."""
    size, (*outer, (first, last)) = stored.dtype.itemsize, pairs
    row = stored.shape[-1] * size
    if not outer:
        yield stored.start + first * size, (last - first) * size
        return
    ((top, bottom),) = outer
    if (last - first) * size == row:
        yield stored.start + top * row, (bottom - top) * row
        return
    for line in range(top, bottom):
        yield stored.start + line * row + first * size, (last - first) * size


def _fill(descriptor: int, target: memoryview, start: int, file: Path) -> None:
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done:]], start + done)
        if count == 0:
            raise ModelError(f"{file}: cut short while it was read; fetch it again")
        done += count


def _files(folder: Path) -> list[Path]:
    """The files that make up the model; ModelError, by name, for one that is missing."""
    names = sorted({file.name for file in _index(folder).values()}) or _unlisted(folder)
    if not names:
        raise ModelError(f"{folder}: no *.safetensors file; give a Hugging Face model folder")
    for name in names:
        if not (folder / name).exists():
            raise ModelError(
                f"{folder}: shard {name} is missing ({len(names)} belong to the model);"
                " fetch the model again"
            )
    return [folder / name for name in names]


def _unlisted(folder: Path) -> list[str]:
    """The files of a folder without an index; shards count each other."""
    found = sorted(file.name for file in folder.glob("*.safetensors"))
    if "model.safetensors" in found:
        return ["model.safetensors"]
    counts = {match[2] for name in found if (match := _SHARD.fullmatch(name))}
    return [
        f"model-{number:05d}-of-{count}.safetensors"
        for count in sorted(counts)
        for number in range(1, int(count) + 1)
    ] or found


def _index(folder: Path) -> dict[str, Path]:
    """File by tensor, of the folder's index; empty without one."""
    file = folder / INDEX
    if not file.exists():
        return {}
    try:
        places = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
        index = {str(name): str(place) for name, place in places.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"{file}: damaged index ({error}); fetch it again") from error
    for place in index.values():
        if place != Path(place).name:
            raise ModelError(f"{file}: {place!r} names no file of the folder; fetch it again")
    return {name: folder / place for name, place in index.items()}


def _header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of one file, each checked to lie inside it."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
                raise ValueError("no header")
            entries = json.loads(stream.read(length))
        entries.pop("__metadata__", None)
        return {name: _stored(file, entry, 8 + length, size) for name, entry in entries.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{file}: damaged safetensors file: {error}; fetch it again") from error


def _stored(file: Path, entry: Mapping[str, Any], base: int, size: int) -> StoredTensor:
    if entry["dtype"] not in _TYPES:
        raise ModelError(
            f"{file}: tensors of type {entry['dtype']} are not supported"
            f" (only {', '.join(_TYPES)}); use the model's unquantized files"
        )
    shape, (start, end) = tuple(int(axis) for axis in entry["shape"]), entry["data_offsets"]
    dtype = np.dtype(_TYPES[entry["dtype"]])
    count = math.prod(shape) * dtype.itemsize
    if end - start != count or start < 0 or base + end > size:
        raise ValueError(f"bytes {start} to {end} don't hold {shape} in {size - base}")
    if len(shape) not in (1, 2) or min(shape) < 1:
        raise ValueError(f"a tensor of shape {shape}")
    return StoredTensor(file=file, start=base + start, shape=shape, dtype=dtype)
