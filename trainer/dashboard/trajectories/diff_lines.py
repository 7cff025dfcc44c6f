"""A unified diff for a page: files, hunks, numbered lines, and which words of a line changed.

Made for what models hand in, which need not be a diff at all: whatever can't be read as one is
shown as it is, and counted as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from markupsafe import Markup, escape

from .changed_words import compared, shown

LineKind: TypeAlias = Literal["added", "removed", "same", "hunk", "note"]
Faults: TypeAlias = Mapping[tuple[str, int], Sequence[Markup]]
"""What is said of lines, by path and number."""

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)", re.DOTALL)
_NAMES = re.compile(r"diff --git (?:\"?a/)(.+?)\"? \"?b/(.+?)\"?$")
_IN_HUNK = ("+", "-", " ", "\\", "")  # what its lines begin with; git has the last for " "
_NO_NUMBERS = '<td class="n"></td><td class="n"></td><td class="s"></td>'


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """One line."""

    kind: LineKind
    text: Markup
    """Without the sign; changed words are in `<b>`."""
    old: int | None = None
    """Its number before, from 1."""
    new: int | None = None
    """Its number after, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFile:
    """What became of one file."""

    path: str
    """As the diff leaves it; empty for lines that belong to no file."""
    lines: tuple[DiffLine, ...]
    added: int
    removed: int

    def rows(self, at: int, prefix: str = "", faults: Faults | None = None) -> Markup:
        """Its lines as rows of a table, what is said of one below it; a page has too many for a
        template's loop. `at` is its place in the diff: with `prefix`, lines of the new file can be
        gone to as `PREFIX-AT-LINE`.
        """
        return Markup("".join(_table_rows(self, at, prefix, faults or {})))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffView:
    """A whole diff."""

    files: tuple[DiffFile, ...]
    added: int
    """Lines of the whole diff, shown or not."""
    removed: int
    left_out: int
    """Lines that are not shown."""
    size: int
    """Bytes."""

    @property
    def words(self) -> str:
        """How much changed."""
        if not self.size:
            return "no change"
        files = len([file for file in self.files if file.path])
        if not files:
            return f"{self.size:,} bytes that are no diff"
        return f"{files} file{'s' * (files > 1)}, +{self.added} \N{MINUS SIGN}{self.removed}"


def diff_view(diff: bytes, *, most: int = 1_500) -> DiffView:
    """`diff` with at most `most` lines shown; bytes that are no UTF-8 are spelled."""
    rows = diff[: 4 << 20].decode("utf-8", "backslashreplace").split("\n")
    if rows and not rows[-1]:
        rows.pop()
    read = list(_read(rows))
    left_out = max(0, len(read) - most)
    if len(diff) > 4 << 20:
        left_out += diff.count(b"\n", 4 << 20)
    return DiffView(
        files=tuple(_files(read[:most])),
        added=sum(row.kind == "added" for row in read),
        removed=sum(row.kind == "removed" for row in read),
        left_out=left_out,
        size=len(diff),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    path: str
    kind: LineKind
    text: str
    old: int | None = None
    new: int | None = None


def _read(rows: Sequence[str]) -> Iterator[_Row]:
    path, old, new, old_left, new_left = "", 0, 0, 0, 0
    for row in rows:
        sign, rest = row[:1], row[1:]
        if (old_left <= 0 and new_left <= 0) or sign not in _IN_HUNK:
            old_left = new_left = 0
            if found := _HUNK.match(row):
                old, old_left = int(found[1]), int(found[2] or 1)
                new, new_left = int(found[3]), int(found[4] or 1)
                yield _Row(path, "hunk", row)
                continue
            if named := _NAMES.match(row):
                path = named[2]
            elif row.startswith("+++ ") and row[4:].strip() not in ("/dev/null", ""):
                path = _after(row[4:], path)
            elif row.startswith("--- ") and not path:
                path = _after(row[4:], path)
            if not row.startswith(("diff --git ", "index ", "--- ", "+++ ")) and row:
                yield _Row(path, "note", row)
        elif sign == "+":
            yield _Row(path, "added", rest, new=new)
            new, new_left = new + 1, new_left - 1
        elif sign == "-":
            yield _Row(path, "removed", rest, old=old)
            old, old_left = old + 1, old_left - 1
        elif sign == "\\":
            yield _Row(path, "note", row)
        else:
            yield _Row(path, "same", rest, old=old, new=new)
            old, old_left, new, new_left = old + 1, old_left - 1, new + 1, new_left - 1


def _after(name: str, known: str) -> str:
    name = name.split("\t")[0].strip().strip('"')
    return name[2:] if name.startswith(("a/", "b/")) else name if name != "/dev/null" else known


def _files(rows: Sequence[_Row]) -> Iterator[DiffFile]:
    start = 0
    for end in range(1, len(rows) + 1):
        if end < len(rows) and rows[end].path == rows[start].path:
            continue
        part = rows[start:end]
        yield DiffFile(
            path=part[0].path,
            lines=tuple(_lines(part)),
            added=sum(row.kind == "added" for row in part),
            removed=sum(row.kind == "removed" for row in part),
        )
        start = end


def _lines(rows: Sequence[_Row]) -> Iterator[DiffLine]:
    """Lines with their words compared where as many were removed as came in their place."""
    at = 0
    while at < len(rows):
        removed = _run(rows, at, "removed")
        added = _run(rows, at + removed, "added")
        if removed and removed == added:
            pairs = [compared(rows[at + n].text, rows[at + removed + n].text)
                     for n in range(removed)]  # fmt: skip
            for row, (before, _) in zip(rows[at:], pairs, strict=False):
                yield _line(row, before)
            for row, (_, after) in zip(rows[at + removed :], pairs, strict=False):
                yield _line(row, after)
            at += removed + added
        else:
            yield _line(rows[at], shown(rows[at].text))
            at += 1


def _run(rows: Sequence[_Row], start: int, kind: LineKind) -> int:
    end = start
    while end < len(rows) and rows[end].kind == kind:
        end += 1
    return end - start


def _line(row: _Row, text: Markup) -> DiffLine:
    return DiffLine(kind=row.kind, text=text, old=row.old, new=row.new)


def _table_rows(file: DiffFile, at: int, prefix: str, faults: Faults) -> Iterator[str]:
    for line in file.lines:
        kind, new, text = line.kind, line.new, escape(line.text)
        if kind in ("hunk", "note"):
            yield f'<tr class="{kind}">{_NO_NUMBERS}<td class="t">{text}</td></tr>\n'
            continue
        found = faults.get((file.path, new), ()) if new else ()
        fault = " at-fault" if found else ""
        place = f' id="{prefix}-{at}-{new}"' if prefix and new else ""
        label = kind if kind != "same" else ""
        yield (
            f'<tr class="{kind}{fault}"{place}><td class="n" data-n="{line.old or ""}"></td>'
            f'<td class="n" data-n="{new or ""}"></td><td class="s">'
            f'<span class="hidden-label">{label}</span></td><td class="t">{text}</td></tr>\n'
        )
        for words in found:
            yield f'<tr class="fault">{_NO_NUMBERS}<td class="t">{escape(words)}</td></tr>\n'
