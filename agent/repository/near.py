"""Where a text that is not in a file nearly is, and how the two differ; pure, bounded work."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FILE_LINES = 20_000  # lines of a file that are looked at
SEARCH_LINES = 100  # lines of a text that is looked for
LINE = 400  # characters of a line that are compared
CANDIDATES = 5  # places that are compared closely
COMPARED = 2000  # characters of such a place
ALIKE = 0.6  # least likeness, of 1, that is worth telling
DIFF_LINES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """The place that is most like a text."""

    first: int
    """Its first line, from 1."""
    last: int
    blanks: str
    """How they differ, where it is in blanks alone; else empty."""
    diff: tuple[str, ...]
    """From the text (-) to the file (+)."""


def nearest(text: str, search: str) -> Near | None:
    """The lines of `text` that are most like `search`; None when nothing is like it."""
    lines = [line[:LINE] for line in text.split("\n", FILE_LINES)[:FILE_LINES]]
    wanted = [line[:LINE] for line in search.strip("\n").split("\n")[:SEARCH_LINES]]
    if not any(line.strip() for line in wanted):
        return None
    found = _same_but_blanks(lines, wanted)
    if found is None:
        found = _most_alike(lines, wanted)
    if found is None:
        return None
    here = lines[found : found + len(wanted)]
    alike = [_squeezed(line) for line in here] == [_squeezed(line) for line in wanted]
    return Near(
        first=found + 1,
        last=found + len(here),
        blanks=_blanks(here, wanted, found + 1) if alike else "",
        diff=tuple(_diff(wanted, here)),
    )


def _squeezed(line: str) -> str:
    """Without any blanks."""
    return "".join(line.split())


def _same_but_blanks(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    squeezed = [_squeezed(line) for line in lines]
    target = [_squeezed(line) for line in wanted]
    for start in range(len(lines) - len(wanted) + 1):
        if squeezed[start] == target[0] and squeezed[start : start + len(target)] == target:
            return start
    return None


def _most_alike(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    best, place, target = ALIKE, None, "\n".join(wanted)[:COMPARED]
    for start in _candidates(lines, wanted):
        here = "\n".join(lines[start : start + len(wanted)])[:COMPARED]
        likeness = difflib.SequenceMatcher(None, here, target, autojunk=False)
        if likeness.quick_ratio() > best and likeness.ratio() > best:
            best, place = likeness.ratio(), start
    return place


def _candidates(lines: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Starts of the places that have most lines in common; else that have one alike."""
    known = {_squeezed(line) for line in wanted} - {""}
    hits = [_squeezed(line) in known for line in lines]
    count = sum(hits[: len(wanted)])
    counts = []
    for start in range(len(lines)):
        counts.append((count, -start))
        end = start + len(wanted)
        count += (hits[end] if end < len(hits) else 0) - hits[start]
    best = [-start for shared, start in heapq.nlargest(CANDIDATES, counts) if shared]
    if best:
        return best
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index].strip()))
    matcher = difflib.SequenceMatcher(None, "", wanted[anchor].strip(), autojunk=False)
    alike = []
    for index, line in enumerate(lines):
        matcher.set_seq1(line.strip())
        if matcher.real_quick_ratio() > ALIKE:
            alike.append((matcher.quick_ratio(), -index))
    best = [-index for _, index in heapq.nlargest(CANDIDATES, alike)]
    return [index - anchor for index in best if index >= anchor]


def _blanks(here: Sequence[str], wanted: Sequence[str], first: int) -> str:
    """The first line that differs, and in which blanks."""
    for number, (have, want) in enumerate(zip(here, wanted, strict=True), first):
        if have == want:
            continue
        indents = [line[: len(line) - len(line.lstrip())] for line in (have, want)]
        if indents[0] != indents[1]:
            return f"line {number} is indented by {_named(indents[0])}, yours by " + _named(
                indents[1]
            )
        ends = [line[len(line.rstrip()) :] for line in (have, want)]
        if ends[0] != ends[1]:
            return f"line {number} ends with {_named(ends[0])}, yours with {_named(ends[1])}"
        return f"line {number} has other blanks between its words"
    return "in the line ends or empty lines around it"


def _named(blanks: str) -> str:
    """As `4 spaces`, `1 tab`, `nothing`."""
    parts = []
    for character, name in ((" ", "space"), ("\t", "tab"), ("\r", "carriage return")):
        if count := blanks.count(character):
            parts.append(f"{count} {name}{'s' if count > 1 else ''}")
    other = len(blanks) - sum(map(blanks.count, " \t\r"))
    return " and ".join([*parts, *([f"{other} other blanks"] if other else [])]) or "nothing"


def _diff(wanted: Sequence[str], here: Sequence[str]) -> Iterator[str]:
    lines = list(difflib.unified_diff(wanted, here, n=2, lineterm=""))[3:]
    yield from lines[:DIFF_LINES]
    if len(lines) > DIFF_LINES:
        yield f"[{len(lines) - DIFF_LINES} more lines]"
