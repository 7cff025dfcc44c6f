"""The metadata of a GGUF file: names and values, without its tensors.

The `gguf` package keeps an array for each string of a vocabulary, which takes a minute for a large
one; this reads the same bytes in a fraction of a second.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path

from .errors import ModelError

Value = str | int | float | bool | list["Value"]

_MAGIC = b"GGUF"
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9


def read_metadata(path: Path) -> Mapping[str, Value]:
    """All names and values; ModelError, in one line that names the file, when it is damaged."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data).metadata()
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

    def metadata(self) -> dict[str, Value]:
        if self._bytes(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a GGUF file")
        version, _, count = self._numbers("IQQ")
        if version not in (2, 3):
            raise ValueError(f"version {version}")
        values: dict[str, Value] = {}
        for _ in range(int(count)):
            name = self._string()
            values[name] = self._value(self._kind())
        return values

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
