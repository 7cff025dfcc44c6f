"""Tells which problems of the new state are new.

A problem is an old one when the base commit has one of the same rule, looked for in this order:
on the same line, carried through the diff's shifts; in the same file, on a line with the same text,
or the same but for a comment at its end; in another file, on a line with the same text, where it is
gone. Each old one explains one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .changes import ChangedFile, Hunk
from .linter import Edit, Problem
from .report import SEVERITIES, Finding

MESSAGE_LIMIT, SOURCE_LIMIT = 400, 200  # characters

Key = Callable[["_Placed"], Hashable]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Placed:
    """A problem, the text of its line, and its line in the new state."""

    problem: Problem
    text: str
    line: int | None
    """None when the diff took it away."""


def compare(
    files: Mapping[str, ChangedFile],
    before: Sequence[Problem],
    after: Sequence[Problem],
    *,
    tool: str,
    unread_before: Collection[str],
    unread_after: Collection[str],
) -> tuple[list[Finding], list[Finding]]:
    """The new findings, and those that are gone. Problems have paths from `files`.

    Where a state of a file could not be read, nothing is said that needs it: no new finding on an
    untouched line, or no fixed one.
    """
    texts = _Texts(files)
    old = [_placed(texts, files, problem, state="before") for problem in before]
    new = [_placed(texts, files, problem, state="after") for problem in after]
    for key in (_same_place, _same_text, _same_code, _same_text_elsewhere):
        old, new = _unmatched(old, new, key)
    fresh = [_finding(files, each, tool) for each in new]
    fresh = [each for each in fresh if not (each.caused and each.path in unread_before)]
    gone = [_described(each, tool) for each in old if each.problem.path not in unread_after]
    return fresh, gone


def _same_place(each: _Placed) -> Hashable:
    return each.problem.path, each.problem.rule, each.line, each.text


def _same_text(each: _Placed) -> Hashable:
    return each.problem.path, each.problem.rule, each.text


def _same_code(each: _Placed) -> Hashable:
    code = re.sub(r"\s(#|//).*", "", each.text)
    return each.problem.path, each.problem.rule, code


def _same_text_elsewhere(each: _Placed) -> Hashable:
    return each.problem.rule, each.text


def _unmatched(
    old: Sequence[_Placed], new: Sequence[_Placed], key: Key
) -> tuple[list[_Placed], list[_Placed]]:
    """What is left on both sides when each takes one with the same key from the other."""
    waiting: dict[Hashable, list[_Placed]] = defaultdict(list)
    for each in old:
        if key is not _same_place or each.line is not None:
            waiting[key(each)].append(each)
    left_new, matched = [], set()
    for each in new:
        partners = waiting.get(key(each))
        if partners:
            matched.add(id(partners.pop(0)))
        else:
            left_new.append(each)
    return [each for each in old if id(each) not in matched], left_new


class _Texts:
    """The lines of files, split once."""

    def __init__(self, files: Mapping[str, ChangedFile]) -> None:
        self._files = files
        self._lines: dict[tuple[str, str], list[str]] = {}

    def line(self, path: str, state: str, number: int) -> str:
        """Without the blanks around it, and with single ones inside."""
        key = (path, state)
        if key not in self._lines:
            file = self._files[path]
            content = (file.before if state == "before" else file.after) or b""
            self._lines[key] = re.split("\r\n|\n|\r", content.decode("utf-8", "replace"))
        lines = self._lines[key]
        return " ".join(lines[number - 1].split()) if number <= len(lines) else ""


def _placed(
    texts: _Texts, files: Mapping[str, ChangedFile], problem: Problem, *, state: str
) -> _Placed:
    text = texts.line(problem.path, state, problem.line)
    line: int | None = problem.line
    if state == "before":
        line = files[problem.path].after_line(problem.line)
    return _Placed(problem=problem, text=text, line=line)


def _finding(files: Mapping[str, ChangedFile], each: _Placed, tool: str) -> Finding:
    problem = each.problem
    touched = files[problem.path].touched(problem.line, problem.end_line)
    return _described(each, tool, caused=not touched)


def _described(each: _Placed, tool: str, *, caused: bool = False) -> Finding:
    problem = each.problem
    return Finding(
        tool=tool,
        rule=_plain(problem.rule)[:100],
        path=problem.path,
        line=problem.line,
        end_line=problem.end_line,
        message=_plain(" ".join(problem.message.split()))[:MESSAGE_LIMIT],
        severity=problem.severity,
        confidence=problem.confidence,
        source="" if problem.secret else _plain(each.text)[:SOURCE_LIMIT],
        caused=caused,
    )


def _plain(text: str) -> str:
    """Without what a terminal would obey."""
    return text if text.isprintable() else re.sub(r"[^\x20-\x7e\xa0-\U0010ffff]", "?", text)


def rank(finding: Finding) -> tuple[int, str, int, str]:
    """Sorts by severity, then place."""
    return SEVERITIES.index(finding.severity), finding.path, finding.line, finding.rule


def touched_edits(
    file: ChangedFile, before: Iterable[Edit], after: Iterable[Edit]
) -> tuple[tuple[int, int], ...]:
    """The touched lines of a file that a formatter would rewrite, as ranges.

    Lines and the gaps between them are counted alike: line n is 2n, the gap behind it 2n + 1.
    """
    known = {gap for edit in before for gap in _known_gaps(file, edit)}
    touched: set[int] = set()
    for edit in after:
        if edit.last >= edit.first:
            wanted = range(edit.first, edit.last + 1)
            touched.update(line for line in wanted if file.touched(line, line))
        elif 2 * edit.first - 1 not in known:
            touched.update(_beside(file, edit.first - 1))
    return _ranges(sorted(touched))


def _known_gaps(file: ChangedFile, edit: Edit) -> Iterable[int]:
    """Where, in the new state, the old one lacked lines already."""
    if edit.last < edit.first:
        above, below = file.after_line(edit.first - 1), file.after_line(edit.first)
        if above is not None and edit.first > 1:
            yield 2 * above + 1
        if below is not None:
            yield 2 * below - 1


def _beside(file: ChangedFile, gap: int) -> Iterable[int]:
    """The line that answers for the gap behind line `gap`, if the diff touched either side."""
    for line in (gap + 1, gap):
        if line > 0 and file.touched(line, line):
            return (line,)
    return (max(gap, 1),) if any(_is_cut(hunk, gap) for hunk in file.hunks) else ()


def _is_cut(hunk: Hunk, gap: int) -> bool:
    """Lines were taken out right there."""
    return not hunk.new_count and hunk.new == gap


def _ranges(lines: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for line in lines:
        if found and line == found[-1][1] + 1:
            found[-1] = (found[-1][0], line)
        else:
            found.append((line, line))
    return tuple(found)
