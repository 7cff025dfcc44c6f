"""The head of a GGUF file: its metadata, and where its tensors lie.

The `gguf` package keeps an array for each string of a vocabulary, which takes a minute for a large
one; this reads the same bytes in a fraction of a second.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from .errors import ModelError

Value = str | int | float | bool | list["Value"]

_MAGIC = b"GGUF"
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


_ALIGNMENT = 32
"""Bytes to whose multiple data is put off, unless the file says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """Where one tensor lies."""

    shape: tuple[int, ...]
    """Sizes of its axes, the last one contiguous: [out, in]."""
    kind: int
    """How values are stored, of `gguf.GGMLQuantizationType`."""
    start: int
    """First byte in the file."""


def read_metadata(path: Path) -> Mapping[str, Value]:
    """All names and values; ModelError, in one line that names the file, when it is damaged."""
    return _read(path, lambda cursor: cursor.metadata())


def read_head(path: Path) -> tuple[Mapping[str, Value], Mapping[str, TensorPlace]]:
    """The same, and the place of each tensor by its name."""
    return _read(path, lambda cursor: cursor.head())


_Read = TypeVar("_Read")


def _read(path: Path, read: Callable[[_Cursor], _Read]) -> _Read:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[: len(_MAGIC)] != _MAGIC:
                raise ModelError(f"{path}: not a GGUF file; delete it and fetch the model again")
            return read(_Cursor(data))
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{path}: can't be read ({error.strerror}); check the path") from error
    except (ValueError, LookupError, struct.error, RecursionError, MemoryError) as error:
        raise ModelError(
            f"{path}: truncated or damaged GGUF ({type(error).__name__});"
            " delete it and fetch the model again"
        ) from error


class _Cursor:
    """Reads on from a place; every length is checked against the file's before it is used."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0
        self._tensors = 0

    def metadata(self) -> dict[str, Value]:
        self._bytes(len(_MAGIC))
        version, tensors, count = self._numbers("IQQ")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        values: dict[str, Value] = {}
        for _ in range(int(count)):
            name = self._string()
            values[name] = self._value(self._kind())
        self._tensors = int(tensors)
        return values

    def head(self) -> tuple[dict[str, Value], dict[str, TensorPlace]]:
        values = self.metadata()
        places: dict[str, TensorPlace] = {}
        for _ in range(self._tensors):
            name, axes = self._string(), self._kind()
            sizes = [int(size) for size in self._numbers(f"{axes}Q")]
            kind, start = self._numbers("IQ")
            shape = tuple(reversed(sizes))
            places[name] = TensorPlace(shape=shape, kind=int(kind), start=int(start))
        alignment = values.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"alignment {alignment}")
        base = self._at + -self._at % alignment
        return values, {name: replace(p, start=base + p.start) for name, p in places.items()}

    def _bytes(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise ValueError("ends early")
        self._at += size
        return piece

    def _numbers(self, layout: str) -> tuple[float, ...]:
        layout = "<" + layout
        return struct.unpack(layout, self._bytes(struct.calcsize(layout)))

    def _kind(self) -> int:
        return int(self._numbers("I")[0])

    def _size(self) -> int:
        size = int(self._numbers("Q")[0])
        if size > len(self._data):
            raise ValueError("longer than the file")
        return size

    def _string(self) -> str:
        return self._bytes(self._size()).decode("utf-8", errors="replace")

    def _value(self, kind: int) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _BOOL:
            return self._bytes(1) != b"\0"
        if kind != _ARRAY:
            return self._numbers(_FORMATS[kind])[0]
        inner, size = self._kind(), self._size()
        if inner in _FORMATS:
            return list(self._numbers(f"{size}{_FORMATS[inner]}"))
        return [self._value(inner) for _ in range(size)]
