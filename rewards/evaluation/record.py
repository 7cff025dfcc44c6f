"""Verdicts and tasks as JSON, and verdicts back from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from patchgym.rewards.base import Verdict

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def plain(value: object) -> Any:
    """Dataclasses and mappings as dicts, tuples as lists, all the way down."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return value


def verdict_from(record: object) -> Verdict:
    """The verdict of which `record` is the plain form. Raises ValueError on anything else."""
    return _adapter().validate_python(record)


@cache
def _adapter() -> TypeAdapter[Verdict]:
    # Inside: pydantic costs more to import than all of this folder.
    from pydantic import TypeAdapter

    return TypeAdapter(Verdict)
