"""Exact search and replace on the bytes of a file; pure."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 1000  # matches that are counted
NAMED = 10  # matches whose lines are told


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What came of a replacement."""

    matches: int
    """Places where the text is, overlapping ones too; counted up to 1000."""
    lines: tuple[int, ...]
    """The line, from 1, at which each of the first ten begins."""
    data: bytes | None = None
    """The file's new bytes, if there was exactly one match."""
    last: int = 0
    """The last line of what was put in its place."""


def replace_once(data: bytes, search: str, replace: str) -> Replaced:
    """Put `replace` where `search`, not empty, is in `data`, if it is there exactly once.

    Line ends in both are CRLF where all of the file's are; in a file that mixes them, they are
    tried as given, then as CRLF.
    """
    for crlf in _line_ends(data):
        old, new = _encoded(search, crlf), _encoded(replace, crlf)
        places = _places(data, old)
        lines = tuple(data.count(b"\n", 0, at) + 1 for at in places[:NAMED])
        if len(places) == 1:
            at = places[0]
            return Replaced(
                matches=1,
                lines=lines,
                data=data[:at] + new + data[at + len(old) :],
                last=lines[0] + new.removesuffix(b"\n").count(b"\n"),
            )
        if places:
            return Replaced(matches=len(places), lines=lines)
    return Replaced(matches=0, lines=())


def has_crlf(data: bytes) -> bool:
    """Whether all lines end in CRLF."""
    return 0 < data.count(b"\n") == data.count(b"\r\n")


def _line_ends(data: bytes) -> tuple[bool, ...]:
    """Ways to write a line end, in the order to try them: as CRLF, or as it is given."""
    if has_crlf(data):
        return (True,)
    return (False, True) if b"\r\n" in data else (False,)


def _encoded(text: str, crlf: bool) -> bytes:
    if crlf:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return text.encode()


def _places(data: bytes, old: bytes) -> list[int]:
    """Where `old` is, overlapping places too."""
    found: list[int] = []
    at = data.find(old)
    while at >= 0 and len(found) < MOST:
        found.append(at)
        at = data.find(old, at + 1)
    return found
