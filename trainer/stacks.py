"""Rows that are computed at once: one, or one for each device that takes rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .tree import TreeRow, empty_row, lengthened


class Stack(NamedTuple):
    """Rows of one length."""

    rows: tuple[TreeRow, ...]
    """As many as there are devices; those past the last place are empty."""
    places: tuple[int, ...]
    """Which row of the batch each is."""

    @property
    def length(self) -> int:
        """T: what a program is compiled for."""
        return self.rows[0].length


def stack_rows(rows: Sequence[TreeRow], size: int) -> list[Stack]:
    """All of `rows` in stacks of `size`, those of about one length together."""
    if size == 1:
        return [Stack((row,), (place,)) for place, row in enumerate(rows)]
    order = sorted(range(len(rows)), key=lambda place: (-rows[place].length, -rows[place].used))
    parts = [tuple(order[start : start + size]) for start in range(0, len(order), size)]
    return [_stack([rows[place] for place in part], part, size) for part in parts]


def _stack(rows: Sequence[TreeRow], places: tuple[int, ...], size: int) -> Stack:
    length = max(row.length for row in rows)
    filled = [lengthened(row, length) for row in rows]
    return Stack((*filled, *[empty_row(length)] * (size - len(rows))), places)
