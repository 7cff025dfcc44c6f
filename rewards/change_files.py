"""The files that differ between two trees, as git tells them: contents, renames, bare hunks.

At most 500 files, 200,000 changed lines and 64 MiB of contents; what is past that is left out. A
file of over 16 MiB, or past the 64, is told as a binary one with empty contents; its lines count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .scene import ChangedFile, Hunk, Line

FILES = 500
LINES = 200_000
FILE_LIMIT = 16 << 20  # bytes, in either state
TOTAL_LIMIT = 64 << 20  # bytes, of both states of all files
_DIFF = (
    *("diff-tree", "-r", "-M", "-l200", "--raw", "-p", "-U0", "-z", "--full-index"),
    *("--no-ext-diff", "--no-textconv", "--no-color", "--inter-hunk-context=0"),
    *("--diff-algorithm=myers", "--indent-heuristic"),
)
_HUNK = re.compile(rb"@@ -(?P<old>\d+)(?:,(?P<olds>\d+))? \+(?P<new>\d+)(?:,(?P<news>\d+))? @@")
_NOTHING = "0" * 40
_LINK_TO_COMMIT = "160000"


class Git(Protocol):
    """Runs git."""

    def __call__(self, *words: str, stdin: bytes = b"") -> bytes:
        """What it prints."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What differs."""

    files: tuple[ChangedFile, ...]
    """By path."""
    touched: frozenset[str]
    """Every path that differs, old names too."""
    cut: str = ""
    """What was left out, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A line of git's raw output, with the hunks that follow later."""

    path: str
    old_path: str | None
    before: str | None
    """Its blob."""
    after: str | None
    parts: int
    """How many pieces of the patch are about it."""
    opaque: bool
    """No file that could be read."""
    hunks: tuple[Hunk, ...] = ()
    binary: bool = False


def read_files(git: Git, before: str, after: str) -> Files:
    """What differs between two trees. Raises GitFailure."""
    told = git(*_DIFF, before, after)
    entries, rest = _raw(told)
    paths = {path for entry in entries for path in (entry.path, entry.old_path) if path}
    every = sorted(_with_hunks(entries, told[rest:]), key=lambda entry: entry.path)
    entries = every[:FILES]
    contents = _contents(git, entries)
    files = tuple(_file(entry, contents) for entry in entries)
    return Files(files=files, touched=frozenset(paths), cut=_cut(every))


def _cut(entries: Sequence[_Entry]) -> str:
    """What goes past the bounds."""
    told = []
    if len(entries) > FILES:
        told.append(f"{len(entries) - FILES} of {len(entries)} files")
    lines = sum(len(h.removed) + len(h.added) for entry in entries for h in entry.hunks)
    if lines >= LINES:
        told.append(f"lines past the first {LINES:,}")
    return " and ".join(told)


def _raw(told: bytes) -> tuple[list[_Entry], int]:
    """The entries, and where the patch begins."""
    entries, at = [], 0
    while told[at : at + 1] == b":":
        end = told.index(b"\0", at)
        old_mode, mode, before, after, status = told[at + 1 : end].decode().split(" ")
        names = []
        for _ in range(2 if status[0] in "RC" else 1):
            start, end = end + 1, told.index(b"\0", end + 1)
            names.append(told[start:end].decode("utf-8", "surrogateescape"))
        at = end + 1
        entries.append(
            _Entry(
                path=names[-1],
                old_path=names[0] if status[0] == "R" else None,
                before=None if before == _NOTHING else before,
                after=None if after == _NOTHING else after,
                parts=2 if status[0] == "T" else 1,
                opaque=_LINK_TO_COMMIT in (old_mode, mode),
            )
        )
    return entries, at + 1


def _with_hunks(entries: Sequence[_Entry], patch: bytes) -> Iterator[_Entry]:
    """The entries with their hunks: the patch has its pieces in the same order."""
    pieces = _pieces(patch)
    for entry in entries:
        hunks: list[Hunk] = []
        binary = entry.opaque
        for _ in range(entry.parts):
            piece_hunks, piece_binary = next(pieces, ([], False))
            hunks += piece_hunks
            binary = binary or piece_binary
        yield replace(entry, hunks=tuple(hunks), binary=binary)


def _pieces(patch: bytes) -> Iterator[tuple[list[Hunk], bool]]:
    """Hunks of each piece that begins with `diff --git`, and whether it is about a binary file."""
    lines = patch.split(b"\n")
    at, room = 0, LINES
    hunks: list[Hunk] = []
    begun = binary = False
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(b"diff --git "):
            if begun:
                yield hunks, binary
            hunks, begun, binary = [], True, False
        elif line.startswith(b"Binary files "):
            binary = True
        elif place := _HUNK.match(line):
            old, new = (int(place[side] or 1) for side in ("olds", "news"))
            removed, at = _taken(lines, at, old, int(place["old"]), room)
            room -= len(removed)
            added, at = _taken(lines, at, new, int(place["new"]), room)
            room -= len(added)
            if removed or added:
                hunks.append(Hunk(removed=removed, added=added))
    if begun:
        yield hunks, binary


def _taken(
    lines: Sequence[bytes], at: int, count: int, first: int, room: int
) -> tuple[tuple[Line, ...], int]:
    """One side of a hunk, at most `room` lines of it, and where the next thing begins."""
    taken = tuple(
        Line(number=number, text=_text(line))
        for number, line in enumerate(lines[at : at + min(count, room)], first)
    )
    at += count
    if count and lines[at : at + 1] and lines[at].startswith(b"\\"):  # no newline at the end
        at += 1
    return taken, at


def _text(line: bytes) -> str:
    """Without the sign in front and what is left of the line's end."""
    end = -1 if line.endswith(b"\r") else None
    return line[1:end].decode("utf-8", "surrogateescape")


def _contents(git: Git, entries: Sequence[_Entry]) -> dict[str, bytes]:
    """By blob; one that is too large is not there."""
    wanted = dict.fromkeys(
        blob
        for entry in entries
        if not entry.opaque
        for blob in (entry.before, entry.after)
        if blob is not None
    )
    if not wanted:
        return {}
    listing = "".join(f"{blob}\n" for blob in wanted).encode()
    chosen, total = [], 0
    told = git("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=listing)
    for line in told.decode().splitlines():
        blob, _, size = line.partition(" ")
        if size.isdigit() and int(size) <= FILE_LIMIT and total + int(size) <= TOTAL_LIMIT:
            chosen.append(blob)
            total += int(size)
    listing = "".join(f"{blob}\n" for blob in chosen).encode()
    data = memoryview(git("cat-file", "--batch", stdin=listing))
    found, at = {}, 0
    for blob in chosen:
        head = bytes(data[at : at + 100]).partition(b"\n")[0]
        start, size_ = at + len(head) + 1, int(head.split()[2])
        found[blob] = bytes(data[start : start + size_])
        at = start + size_ + 1
    return found


def _file(entry: _Entry, contents: dict[str, bytes]) -> ChangedFile:
    blobs = [blob for blob in (entry.before, entry.after) if blob is not None]
    whole = all(blob in contents for blob in blobs)
    before, after = (
        None if blob is None else contents[blob] if whole else b""
        for blob in (entry.before, entry.after)
    )
    return ChangedFile(
        path=entry.path,
        before=before,
        after=after,
        hunks=entry.hunks,
        old_path=entry.old_path,
        binary=entry.binary or not whole,
    )
