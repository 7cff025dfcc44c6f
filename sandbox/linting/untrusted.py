"""Reads JSON that untrusted code may have had a hand in, without trusting its shape."""

from __future__ import annotations

import json
from typing import Any

from .linter import UnreadableOutput

LINE_LIMIT = 1_000_000_000


def load(data: bytes) -> Any:
    """The value. Raises UnreadableOutput."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise UnreadableOutput(f"its output is no JSON: {str(problem)[:100]}") from None


def mapping(value: object) -> dict[str, Any]:
    """An object, or an empty one."""
    return value if isinstance(value, dict) else {}


def listing(value: object) -> list[Any]:
    """An array, or an empty one."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """A string, or an empty one; what can't be encoded becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def line_number(value: object, least: int = 1) -> int:
    """A line from `least`, whatever was given."""
    if isinstance(value, bool) or not isinstance(value, int):
        return least
    return max(least, min(value, LINE_LIMIT))
