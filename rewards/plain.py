"""Values as JSON: dataclasses as they are read back, and digests that every process agrees on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: object) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists, all the way down; the rest as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return value


def canonical(value: object) -> object:
    """JSON that differs whenever the value does: types by name, sets sorted, bytes as digests."""
    if is_dataclass(value) and not isinstance(value, type):
        known = {item.name: canonical(getattr(value, item.name)) for item in fields(value)}
        return [type(value).__qualname__, known]
    if isinstance(value, Mapping):
        return {str(key): canonical(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [canonical(inner) for inner in value]
    if isinstance(value, frozenset | set):
        return sorted(repr(inner) for inner in value)
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    return value if isinstance(value, str | int | float | None) else repr(value)


def digest(value: object) -> str:
    """Sha256 of a value's canonical form, hexadecimal."""
    text = json.dumps(canonical(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
