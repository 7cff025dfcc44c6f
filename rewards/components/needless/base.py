"""What the rules for needless changes share: findings, their kinds, and hunks in their place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from patchgym.rewards.scene import ChangedFile, Hunk

Kind = Literal[
    "whitespace",
    "layout",
    "comments",
    "renames",
    "file_renames",
    "modes",
    "generated",
    "stray",
    "debug",
    "unexercised",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

FILE = 5.0
"""What a whole file that should not be there weighs, in needless lines."""
NEAR = 12
"""Lines from changed code within which a comment still speaks of it."""

SLIGHT = 0.3
"""The share of a single blank line at changed code, where no gold shows that it can be without."""

WEIGHTS: Mapping[Kind, float] = {
    "whitespace": 1.0,
    "layout": 1.0,
    "comments": 1.0,
    "renames": 2.0,
    "file_renames": FILE,
    "modes": 1.0,
    "generated": FILE,
    "stray": FILE,
    "debug": 2.0,
    "unexercised": 0.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the rules know besides the change."""

    test_files: Collection[str] = ()
    """Of the task."""
    loaded: Collection[str] | None = None
    """Files that the tests loaded; None when nobody knows."""
    has_gold: bool = False
    """There is a solution of the task's own, so that what it leaves alone could be left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needless:
    """One thing that the task did not need."""

    kind: Kind
    path: str
    message: str
    """One line."""
    line: int | None = None
    """From 1, in the new file; None when it is about the whole file."""
    count: int = 1
    """Lines, or files for the kinds that are about whole files."""
    share: float = 1.0
    """Of the kind's weight, where it is a slighter case."""

    @property
    def weight(self) -> float:
        """In needless lines."""
        return WEIGHTS[self.kind] * self.count * self.share


def needless(
    kind: Kind,
    file: ChangedFile,
    message: str,
    line: int | None = None,
    count: int = 1,
    share: float = 1.0,
) -> Needless:
    """A finding about `file`."""
    return Needless(kind=kind, path=file.path, message=message, line=line, count=count, share=share)


def placed(file: ChangedFile) -> Iterator[tuple[Hunk, int]]:
    """Every hunk with its first line in the new file, or where that would be."""
    shift = 0
    for hunk in file.hunks:
        if hunk.size:
            gone = 0 if hunk.added else max(1, hunk.removed[0].number + shift)
            yield hunk, hunk.added[0].number if hunk.added else gone
        shift += len(hunk.added) - len(hunk.removed)


def lines_of(hunk: Hunk) -> int:
    """How many lines a hunk is about, a replaced one counted once."""
    return max(len(hunk.added), len(hunk.removed))
