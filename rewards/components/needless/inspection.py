"""All rules on one change, within a limit of text that is read closely."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from patchgym.rewards.scene import Change, ChangedFile

from .base import Known, Needless, needless
from .debug import debug_leftovers
from .files import file_findings
from .hunks import python_hunks
from .places import generated
from .reading import Reading, read_python
from .renames import renames
from .texts import text_hunks

READ_LIMIT = 2 << 20
"""Bytes of Python, old and new, that are read as tokens; the rest is looked at by lines."""


def inspect(change: Change, known: Known) -> list[Needless]:
    """Everything in `change` that no task needs, in the order of its files."""
    left = READ_LIMIT
    found = list(file_findings(change, known))
    told = {each.path for each in found if each.kind in ("generated", "stray")}
    for file in change.files:
        if file.path in told or file.binary or file.after is None or generated(file.path):
            continue
        size = len(file.before or b"") + len(file.after)
        close = file.path.endswith((".py", ".pyi")) and size <= left
        left -= size if close else 0
        found += _in_file(file, close, known)
    return found


def _in_file(file: ChangedFile, close: bool, known: Known) -> Iterator[Needless]:
    old = read_python(file.before) if close and file.before is not None else None
    new = read_python(file.after) if close and file.after is not None else None
    if file.before is None:
        return debug_leftovers(file, None, new, known.test_files)
    if turned := _line_ends(file):
        return iter(turned)
    return chain(_hunks(file, old, new, known), debug_leftovers(file, old, new, known.test_files))


def _hunks(
    file: ChangedFile, old: Reading | None, new: Reading | None, known: Known
) -> Iterator[Needless]:
    if old is not None and new is not None:
        return chain(python_hunks(file, old, new, known), renames(file, old, new, known))
    return text_hunks(file)


def _line_ends(file: ChangedFile) -> list[Needless]:
    """The file if its line ends are others now; its lines then tell nothing."""
    before, after = file.before or b"", file.after or b""
    share = [text.count(b"\r\n") / max(1, text.count(b"\n")) for text in (before, after)]
    if min(share) > 0.5 or max(share) < 0.5 or b"\n" not in before or b"\n" not in after:
        return []
    count = max(file.added, file.removed, 1)
    return [needless("whitespace", file, "all line ends changed", 1, count)]
