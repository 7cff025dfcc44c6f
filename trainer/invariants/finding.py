"""What became of one invariant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one invariant."""

    name: str
    """One word or two, for programs."""
    promise: str
    """The invariant, in words."""
    checked: int
    """Things that were looked at."""
    broken: tuple[str, ...] = ()
    """A line for each that does not hold."""
    note: str = ""
    """What else is worth knowing."""
