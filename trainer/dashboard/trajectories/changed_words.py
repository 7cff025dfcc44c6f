"""Two versions of a line, with the words that differ between them marked."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache

from markupsafe import Markup

from patchgym.trainer.dashboard.inert import inert

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_LONGEST = 1_000  # characters of a line that are shown
_COMPARED = 300  # characters up to which the words of two lines are compared


def shown(text: str) -> Markup:
    """A line; of a very long one the beginning."""
    if len(text) <= _LONGEST:
        return inert(text)
    left_out = Markup(' <span class="cut-mark">{} more characters</span>')
    return inert(text[:_LONGEST]) + left_out.format(f"{len(text) - _LONGEST:,}")


@lru_cache(maxsize=4096)
def compared(before: str, after: str) -> tuple[Markup, Markup]:
    """Both lines, the words that differ in `<b>`; unmarked where little is alike.

    Kept, since the rollouts of a task change the same lines, and are looked at one after the other.
    """
    if max(len(before), len(after)) > _COMPARED:
        return shown(before), shown(after)
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _alike(old, new)
    tail = _alike(old[head:][::-1], new[head:][::-1])
    blocks = _blocks(old[head : len(old) - tail], new[head : len(new) - tail])
    same = head + tail + sum(size for _, _, size in blocks)
    if 2 * same < 0.4 * (len(old) + len(new)):
        return inert(before), inert(after)
    # Runs of words that both have, as places in one of them and length; empty ones at the ends.
    left = [(0, head), *((head + at, size) for at, _, size in blocks), (len(old) - tail, tail)]
    right = [(0, head), *((head + at, size) for _, at, size in blocks), (len(new) - tail, tail)]
    return _bold(old, left), _bold(new, right)


def _blocks(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[int, int, int]]:
    """Runs of words that both have: place in each, length."""
    if not old or not new:
        return ()
    found = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return [(one, other, size) for one, other, size in found if size]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words are equal at the beginning."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _bold(words: Sequence[str], same: Sequence[tuple[int, int]]) -> Markup:
    """`words` with what lies between the runs `same` in `<b>`."""
    made: list[str] = []
    at = 0
    for start, size in same:
        if at < start:
            made += ("<b>", inert("".join(words[at:start])), "</b>")
        if size:
            made.append(inert("".join(words[start : start + size])))
        at = start + size
    return Markup("".join(made))
