"""Hunks of files that can't be read as Python: blanks and comments, by their look."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from patchgym.rewards.scene import ChangedFile, Hunk, Line

from .base import NEAR, Needless, lines_of, needless, placed
from .places import is_docs

_HASH = frozenset("py pyx pxd pyi rb sh bash yml yaml toml cfg pl r jl tf cmake".split())
_SLASH = frozenset(
    "js jsx ts tsx mjs cjs go rs c h cc cpp hpp java kt scala swift cs php dart scss".split()
)
_STRICT = frozenset(
    "py pyx pxd pyi yml yaml md rst txt mk coffee haml slim tsv csv patch diff".split()
)
"""Where indentation, or any blank, has a meaning."""
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`")
_BLANK_LINES = "only blank lines"
_LINE = 2_000  # characters of a line that are looked at


def text_hunks(file: ChangedFile) -> Iterator[Needless]:
    """Hunks that change blanks only, and comments far from changed code."""
    suffix = file.path.rpartition("/")[2].rpartition(".")[2].lower()
    strict = suffix in _STRICT or "makefile" in file.path.lower()
    hunks = list(placed(file))
    code = sorted(
        line for hunk, place in hunks if not _is_remark(hunk, suffix)
        for line in (place, place + max(0, len(hunk.added) - 1))
    )  # fmt: skip
    for hunk, place in hunks:
        if message := _blanks(hunk, strict):
            if message == _BLANK_LINES and is_docs(file.path):
                continue
            yield needless("whitespace", file, message, place, lines_of(hunk))
        elif _is_remark(hunk, suffix) and not _is_near(place, code):
            what = "a comment changed" if hunk.removed else "a new comment"
            message = f"{what} far from any changed code"
            yield needless("comments", file, message, place, lines_of(hunk))
        elif not _is_remark(hunk, suffix):
            yield from _same_lines(file, hunk)


def _blanks(hunk: Hunk, strict: bool) -> str:
    """What is told of a hunk that changes blanks only; empty for any other."""
    old, new = ([line for line in side if line.text.strip()] for side in (hunk.removed, hunk.added))
    if not old and not new:
        return _BLANK_LINES
    if strict and [_indentation(line) for line in old] != [_indentation(line) for line in new]:
        return ""
    same = [_squeezed(line) for line in old] == [_squeezed(line) for line in new]
    return "only blanks" if same else ""


def _same_lines(file: ChangedFile, hunk: Hunk) -> Iterator[Needless]:
    """Lines beside changed ones that differ in blanks within, or at their end."""
    kept = {line.text for line in hunk.added}
    gone: defaultdict[tuple[str, str], deque[str]] = defaultdict(deque)
    for line in hunk.removed:
        if line.text.strip() and line.text not in kept:
            gone[_indentation(line), _squeezed(line)].append(line.text)
    for line in hunk.added:
        waiting = gone.get((_indentation(line), _squeezed(line)))
        if waiting and waiting.popleft() != line.text:
            yield needless("whitespace", file, "only blanks", line.number)


def _indentation(line: Line) -> str:
    return line.text[: len(line.text) - len(line.text.lstrip())]


def _squeezed(line: Line) -> str:
    """The line without blanks, but for those in quotes."""
    if len(line.text) > _LINE:
        return line.text
    parts, last = [], 0
    for match in _QUOTED.finditer(line.text):
        parts += [*line.text[last : match.start()].split(), match[0]]
        last = match.end()
    return "".join([*parts, *line.text[last:].split()])


def _is_remark(hunk: Hunk, suffix: str) -> bool:
    """Whether all lines with something in them are comments."""
    lines = [line.text.strip() for line in (*hunk.removed, *hunk.added) if line.text.strip()]
    marks = ("#",) if suffix in _HASH else ("//", "/*", "*/", "* ") if suffix in _SLASH else ()
    return bool(marks and lines) and all(text.startswith(marks) or text == "*" for text in lines)


def _is_near(line: int, code: Sequence[int]) -> bool:
    at = bisect_left(code, line - NEAR)
    return at < len(code) and code[at] <= line + NEAR
