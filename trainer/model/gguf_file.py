"""The GGUF container: metadata and tensors of a file, nothing about models.

    magic "GGUF" · version u32 · count of tensors u64 · count of metadata u64 ·
    each of the metadata: key, type u32, value ·
    each tensor: name, count of dimensions u32, sizes u64 each, type u32, offset in the data u64 ·
    padding to `general.alignment` · data

A string is its length (u64) and UTF-8; an array is its element type (u32), count (u64), elements.
Numbers are little-endian. (The `gguf` package reads this too, but takes seconds for the hundred
thousand strings of a tokenizer.)
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ModelError

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i",
    6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_DEEPEST = 4
"""Arrays in arrays, at most; real files have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """Where a tensor lies and how it is stored."""

    shape: tuple[int, ...]
    """Slowest axis first, as numpy has it; the file has it the other way round."""
    kind: int
    """`gguf.GGMLQuantizationType`."""
    offset: int
    """Bytes from the start of the file."""


class GgufFile:
    """A parsed file; `fields` by key, `tensors` by name. Tensors are read when asked for."""

    def __init__(self, path: Path) -> None:
        """Raise ModelError, in one line, when `path` is missing, truncated or damaged."""
        self.path = path
        try:
            with path.open("rb") as file:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise ModelError(
                        f"{path}: not a GGUF file; delete it and fetch the model again"
                    )
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelError(f"{path}: can't be read ({error.strerror}); check the path") from error
        self.fields: dict[str, Any] = {}
        self.tensors: dict[str, GgufTensor] = {}
        self._place = len(_MAGIC)
        try:
            self._parse()
        except (struct.error, ValueError, LookupError) as error:
            raise self._damaged(error) from error

    def values(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor in float32; KeyError when the file has none of that name."""
        import gguf

        tensor = self.tensors[name]
        try:
            kind = gguf.GGMLQuantizationType(tensor.kind)
            rows = gguf.quant_shape_to_byte_shape(tensor.shape, kind)
            size = int(np.prod(rows, dtype=object))
            if size > len(self._data) - tensor.offset:
                raise ValueError(f"tensor {name} ends past the end of the file")
            raw = np.frombuffer(self._data, np.uint8, size, tensor.offset).reshape(rows)
            values = gguf.dequantize(raw, kind)
        except (ValueError, LookupError, NotImplementedError) as error:
            raise self._damaged(error) from error
        # A copy: float32 tensors would else keep the file mapped.
        return np.array(values, np.float32).reshape(tensor.shape)

    def _damaged(self, error: Exception) -> ModelError:
        return ModelError(
            f"{self.path}: truncated or damaged GGUF ({error}); delete it and fetch the model again"
        )

    def _parse(self) -> None:
        version = self._number("<I")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        tensors, fields = self._number("<Q"), self._number("<Q")
        for _ in range(fields):
            key = self._string()
            self.fields[key] = self._value(self._number("<I"))
        found = [self._tensor() for _ in range(tensors)]
        alignment = self.fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError("general.alignment is not a positive number")
        start = -(-self._place // alignment) * alignment
        for name, shape, kind, offset in found:
            self.tensors[name] = GgufTensor(shape=shape, kind=kind, offset=start + offset)

    def _number(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self._data, self._place)
        self._place += struct.calcsize(layout)
        return value

    def _string(self) -> str:
        length = self._number("<Q")
        text = self._data[self._place : self._place + length]
        if len(text) < length:
            raise ValueError("a text ends past the end of the file")
        self._place += length
        return text.decode("utf-8")

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._number(_SCALARS[kind])
        if depth == _DEEPEST:
            raise ValueError("arrays in arrays without end")
        inner, count = self._number("<I"), self._number("<Q")
        return [self._value(inner, depth + 1) for _ in range(count)]

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, dimensions = self._string(), self._number("<I")
        if dimensions > 8:
            raise ValueError(f"a tensor of {dimensions} dimensions")
        sizes = [self._number("<Q") for _ in range(dimensions)]
        return name, tuple(reversed(sizes)), self._number("<I"), self._number("<Q")
