"""The beginning and the end of a long text: what a page shows of it, and how much it does not."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from patchgym.trainer.dashboard.inert import inert


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What is shown of a text."""

    head: Markup
    tail: Markup
    """Empty when nothing was left out."""
    length: int
    """Characters of the whole."""
    left_out: int
    """Characters between head and tail."""

    @property
    def words(self) -> str:
        """What is not shown, for people; empty when all of it is."""
        return f"{self.left_out:,} of {self.length:,} characters not shown" * bool(self.left_out)


def excerpt(
    text: str, *, head: int = 12_000, tail: int = 4_000, lines: int = 400, last_lines: int = 120
) -> Excerpt:
    """At most `head` characters and `lines` lines of the beginning, and likewise of the end.

    What lies between is never looked at, so that a text of any length costs the same.
    """
    start = _beginning(text, head, lines)
    end = max(start, _ending(text, tail, last_lines))
    if end - start <= 200:  # not worth a cut
        start = len(text)
    if start >= len(text):
        return Excerpt(head=inert(text), tail=Markup(""), length=len(text), left_out=0)
    return Excerpt(
        head=inert(text[:start]),
        tail=inert(text[end:]),
        length=len(text),
        left_out=end - start,
    )


def _beginning(text: str, characters: int, lines: int) -> int:
    """Where the first `lines` lines end, or the first `characters`."""
    limit = min(characters, len(text))
    at = 0
    for _ in range(lines):
        found = text.find("\n", at, limit)
        if found < 0:
            return limit
        at = found + 1
    return at


def _ending(text: str, characters: int, lines: int) -> int:
    """Where the last `lines` lines begin, or the last `characters`."""
    limit = max(0, len(text) - characters)
    at = len(text)
    for _ in range(lines + 1):
        found = text.rfind("\n", limit, at)
        if found < 0:
            return limit
        at = found
    return at + 1
