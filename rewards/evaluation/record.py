"""Verdicts back from their JSON form, which `rewards.plain` makes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from patchgym.rewards.base import Verdict

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def verdict_from(record: object) -> Verdict:
    """The verdict of which `record` is the plain form. Raises ValueError on anything else."""
    return _adapter().validate_python(record)


@cache
def _adapter() -> TypeAdapter[Verdict]:
    # Inside: pydantic costs more to import than all of this folder.
    from pydantic import TypeAdapter

    return TypeAdapter(Verdict)
