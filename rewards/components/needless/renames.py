"""Identifiers that a change only renames, beside what else it does."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from patchgym.rewards.scene import ChangedFile, Line

from .base import Known, Needless, needless, placed
from .places import is_test
from .reading import Reading, Token

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Renamed:
    """A line that became another one by nothing but new names."""

    line: int
    names: frozenset[Pair]
    """Old and new name."""
    bound: frozenset[Pair]
    """Those of them that the line gives a meaning to."""
    shared: frozenset[Pair]
    """Those of them that others may know."""


def renames(file: ChangedFile, old: Reading, new: Reading, known: Known) -> Iterator[Needless]:
    """Lines of which nothing but identifiers changed, to names that are new in the file.

    A name counts only if the change renames it where it is bound, all over its scope: using
    another name, an old or a new one, is a change of code. What functions, classes and attributes
    are called may be what was asked for, so they count only where gold shows that it was not. A
    change that does nothing but rename, or a single line, is left alone for the same reason where
    there is no gold, and tests may call things what they like.
    """
    if is_test(file.path, known.test_files):
        return
    lines = [
        line
        for hunk, _ in placed(file)
        for line in _renamed(hunk.removed, hunk.added, old, new)
    ]  # fmt: skip
    sound = _sound(lines, old, new, unsure=not known.has_gold)
    found = [line for line in lines if line.names <= sound]
    if not known.has_gold and len(found) in (0, 1, _code_lines(file, new)):
        return
    for each in found:
        told = ", ".join(f"{a} is {b} now" for a, b in sorted(each.names))
        yield needless("renames", file, f"only renamed: {told}", each.line)


def _sound(
    lines: Sequence[_Renamed], old: Reading, new: Reading, *, unsure: bool
) -> frozenset[Pair]:
    """The renamings that are bound, new to the file, complete, and of one name to one name."""
    bound = {pair: each.line for each in lines for pair in each.bound}
    shared = {pair for each in lines for pair in each.shared}
    pairs = {(new.scope_at.get(each.line, -1), pair) for each in lines for pair in each.bound}
    olds = Counter((scope, a) for scope, (a, _) in pairs)
    news = Counter(b for _, b in {pair for _, pair in pairs})
    return frozenset(
        (a, b)
        for (a, b), line in bound.items()
        if b not in old.names
        and b != "_"
        and news[b] == 1
        and olds[new.scope_at.get(line, -1), a] == 1
        and not (unsure and (a, b) in shared)
        and not _is_left(a, line, new)
    )


def _is_left(name: str, line: int, new: Reading) -> bool:
    """Whether the scope of that line still has the old name."""
    index = new.scope_at.get(line, -1)
    if index < 0:
        return name in new.names
    scope = new.scopes[index]
    places = new.names.get(name, [])
    at = bisect_left(places, scope.start)
    return at < len(places) and places[at] <= scope.end


def _code_lines(file: ChangedFile, new: Reading) -> int:
    added = (line.number for hunk in file.hunks for line in hunk.added)
    only_removed = sum(len(hunk.removed) for hunk in file.hunks if not hunk.added)
    return sum(number in new.code for number in added) + only_removed


def _renamed(
    removed: Sequence[Line], added: Sequence[Line], old: Reading, new: Reading
) -> Iterator[_Renamed]:
    """Pairs of lines with the same shape: the same tokens but for the identifiers."""
    waiting: defaultdict[tuple[str, ...], deque[list[Token]]] = defaultdict(deque)
    for line in removed:
        if tokens := old.code.get(line.number):
            waiting[_shape(tokens)].append(tokens)
    for line in added:
        tokens = new.code.get(line.number)
        if not tokens or not (found := waiting.get(_shape(tokens))):
            continue
        pairs = [(a, b) for a, b in zip(found.popleft(), tokens, strict=True) if a.text != b.text]
        names = frozenset((a.text, b.text) for a, b in pairs)
        if pairs and len({a for a, _ in names}) == len(names):
            bound = frozenset((a.text, b.text) for a, b in pairs if a.binds and b.binds)
            shared = frozenset((a.text, b.text) for a, b in pairs if a.shared or b.shared)
            yield _Renamed(line=line.number, names=names, bound=bound, shared=shared)


def _shape(tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple("\0name" if token.name else token.text for token in tokens)
