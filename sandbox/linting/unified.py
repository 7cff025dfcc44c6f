"""Reads the unified diffs that formatters print."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .linter import Edit


def read_edits(diff: bytes, *, prefix: str = "") -> dict[str, tuple[Edit, ...]]:
    """The edits of a unified diff, by the path behind `+++`, less `prefix` and what a tab sets
    apart from it. Lines are numbered as in the old file. Never raises."""
    edits: dict[str, list[Edit]] = {}
    lines = iter(diff.decode("utf-8", "replace").split("\n"))
    path = ""
    for line in lines:
        header = re.match(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@", line)
        if header and path:
            old, count, new = (int(1 if each is None else each) for each in header.groups())
            edits.setdefault(path, []).extend(_hunk(lines, old if count else old + 1, count, new))
        elif line.startswith("+++ "):
            path = line[4:].partition("\t")[0].removeprefix(prefix)
    return {name: tuple(found) for name, found in edits.items()}


def _hunk(lines: Iterator[str], at: int, old: int, new: int) -> Iterator[Edit]:
    """The edits of a hunk that begins at line `at` and has that many old and new lines."""
    first, last, open_ = at, at - 1, False
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            break
        kind = line[:1]
        if kind == "\\":
            continue
        if kind not in ("-", "+") and open_:
            yield Edit(first=first, last=last)
            open_ = False
        if kind in ("-", "+") and not open_:
            first, last, open_ = at, at - 1, True
        old, new = old - (kind != "+"), new - (kind != "-")
        at += kind != "+"
        last += kind == "-"
    if open_:
        yield Edit(first=first, last=last)
