"""Typed access to a GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ModelError
from .gguf_metadata import Value


@dataclass(frozen=True, slots=True)
class Fields:
    """Typed access to the file's metadata."""

    values: Mapping[str, Value]
    path: Path

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def _typed(self, key: str, kinds: type | tuple[type, ...], default: Any = None) -> Any:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, kinds):
            raise ModelError(f"{self.path}: metadata {key} is missing or of the wrong type")
        return value

    def text(self, key: str) -> str:
        return str(self._typed(key, str))

    def integer(self, key: str, default: int | None = None) -> int:
        return int(self._typed(key, int, default))

    def number(self, key: str, default: float | None = None) -> float:
        """A number; those that the file holds in float32 come back as they were written.

        1e-05 is read as 9.999999747378752e-06.
        """
        return float(f"{self._typed(key, (int, float), default):.7g}")

    def items(self, key: str) -> list[Any]:
        return list(self._typed(key, list))
