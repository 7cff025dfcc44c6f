"""A change in a form that the store can keep: contents as base64, hunks as line numbers.

Reading a change takes git some tens of milliseconds; a patch that was scored before needs it again
only for components that are measured anew.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from .scene import Change, ChangedFile, Hunk, Line

Span = tuple[int, int]
"""The first line, from 1, and how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """One file of it."""

    path: str
    old_path: str | None
    before: str | None
    after: str | None
    hunks: tuple[tuple[Span, Span], ...]
    """What goes of the old file, what comes in the new one."""
    binary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChange:
    """What `opened` makes a `Change` of again."""

    tree: str
    problem: str
    files: tuple[KeptFile, ...]


def kept(change: Change) -> KeptChange | None:
    """Of a change; None for one that can't be had back exactly, such as one that was cut."""
    if change.cut:
        return None
    files = tuple(_kept_file(file) for file in change.files)
    made = KeptChange(tree=change.tree, problem=change.problem, files=files)
    return made if opened(made) == change else None


def opened(kept: KeptChange) -> Change:
    """The change again."""
    files = tuple(_file(file) for file in kept.files)
    return Change(tree=kept.tree, problem=kept.problem, files=files)


def _kept_file(file: ChangedFile) -> KeptFile:
    return KeptFile(
        path=file.path,
        old_path=file.old_path,
        before=_text(file.before),
        after=_text(file.after),
        hunks=tuple((_span(hunk.removed), _span(hunk.added)) for hunk in file.hunks),
        binary=file.binary,
    )


def _file(file: KeptFile) -> ChangedFile:
    before, after = _bytes(file.before), _bytes(file.after)
    old, new = (_lines(data) if file.hunks else [] for data in (before, after))
    return ChangedFile(
        path=file.path,
        old_path=file.old_path,
        before=before,
        after=after,
        hunks=tuple(
            Hunk(removed=_taken(old, removed), added=_taken(new, added))
            for removed, added in file.hunks
        ),
        binary=file.binary,
    )


def _span(lines: tuple[Line, ...]) -> Span:
    return (lines[0].number, len(lines)) if lines else (1, 0)


def _taken(lines: list[bytes], span: Span) -> tuple[Line, ...]:
    first, count = span
    return tuple(
        Line(number=number, text=line.removesuffix(b"\r").decode("utf-8", "surrogateescape"))
        for number, line in enumerate(lines[first - 1 : first - 1 + count], first)
    )


def _lines(data: bytes | None) -> list[bytes]:
    return (data or b"").split(b"\n")


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
