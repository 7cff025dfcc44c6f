"""Hunks of Python whose code stays the same: blanks, layout, comments and docstrings."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

from patchgym.rewards.scene import ChangedFile, Hunk, Line

from .base import NEAR, SLIGHT, Known, Needless, lines_of, needless, placed
from .places import is_test
from .reading import DEDENT, NEWLINE, Reading

_MOST_BLANK = 2  # lines in a row, as every style guide has it
_GLUE = frozenset({"(", ")", ",", NEWLINE, DEDENT, "import", "from"})
_DOCSTRING = 0.25  # lines that a docstring counts: it may be about what changed elsewhere
_CLOSE = 3  # lines
_MOVED = 4  # lines of a definition that is worth a word when it moves


def python_hunks(file: ChangedFile, old: Reading, new: Reading, known: Known) -> Iterator[Needless]:
    """What the hunks of a file change without changing code. Both sides could be read."""
    hunks = [_Placed(hunk, place, old, new) for hunk, place in placed(file)]
    near = _Nearness([hunk for hunk in hunks if not hunk.same_code], new)
    reordered = _reordered_imports(hunks)
    for index, each in enumerate(hunks):
        if each.same_code:
            yield from _same_code(file, each, near, known)
        elif index in reordered:
            yield needless("layout", file, "imports in another order", each.place, each.count)
        else:
            yield from _same_lines(file, each)
            yield from _blank_lines(file, each, known)
    yield from _moved(file)


class _Placed:
    """A hunk with its place in the new file, and what its two sides say."""

    def __init__(self, hunk: Hunk, place: int, old: Reading, new: Reading) -> None:
        self.hunk, self.place, self.count = hunk, place, lines_of(hunk)
        self.old, self.new = old, new
        self.before, self.after = code_of(hunk.removed, old), code_of(hunk.added, new)
        self.same_code = self.before == self.after

    @property
    def sides(self) -> tuple[tuple[Sequence[Line], Reading], tuple[Sequence[Line], Reading]]:
        """The lines of each side with their file."""
        return (self.hunk.removed, self.old), (self.hunk.added, self.new)

    @property
    def is_documentation(self) -> bool:
        """Whether it changes bare strings, such as docstrings, and no comment."""
        return not any(
            line.number in reading.comments for lines, reading in self.sides for line in lines
        )

    @property
    def in_head(self) -> bool:
        """Whether it stands above all code: licences, authors, what the module is for."""
        return self.end < min(self.new.code, default=0)

    @property
    def end(self) -> int:
        """Its last line in the new file."""
        return self.place + max(0, len(self.hunk.added) - 1)


class _Nearness:
    """What is close to code that changed: a few lines off, or in the same function or class."""

    def __init__(self, changed: Sequence[_Placed], new: Reading) -> None:
        self._reading = new
        self._lines = sorted({line for each in changed for line in (each.place, each.end)})
        self._statements = {new.statement_at.get(line, line) for line in self._lines}
        self._scopes: set[int] = set()
        for line in self._lines:
            scope = new.scope_at.get(line, -1)
            while scope >= 0 and scope not in self._scopes:
                self._scopes.add(scope)
                scope = new.scopes[scope].parent

    def __call__(self, line: int, within: int) -> bool:
        """Whether code changed at most `within` lines off."""
        at = bisect_left(self._lines, line - within)
        return at < len(self._lines) and self._lines[at] <= line + within

    def speaks_of(self, line: int) -> bool:
        """Whether a comment there may be about code that changed."""
        return self(line, NEAR) or self._reading.scope_at.get(line, -1) in self._scopes

    def same_statement(self, line: int) -> bool:
        """Whether the statement of that line changed elsewhere, so that it had to be set anew."""
        return self._reading.statement_at.get(line) in self._statements


def code_of(lines: Sequence[Line], reading: Reading) -> list[str]:
    """The tokens of these lines, commas that mean nothing left out."""
    return [
        token.text for line in lines for token in reading.code.get(line.number, ()) if token.text
    ]


def _same_code(
    file: ChangedFile, each: _Placed, near: _Nearness, known: Known
) -> Iterator[Needless]:
    """A hunk that leaves the code as it is."""
    removed, added = each.hunk.removed, each.hunk.added
    if near.same_statement(each.place):
        return
    old, new = (_remarks(lines, reading) for lines, reading in each.sides)
    if not any(line.text.strip() for line in (*removed, *added)):
        slight = each.count == 1 and not known.has_gold and near(each.place, _CLOSE)
        share = SLIGHT if slight else 1.0
        yield needless("whitespace", file, "only blank lines", each.place, each.count, share)
    elif _squeezed(removed) == _squeezed(added):
        yield needless("whitespace", file, "only blanks", each.place, each.count)
    elif old == new:
        yield needless("layout", file, "the same code laid out anew", each.place, each.count)
    elif not is_test(file.path) and not each.in_head and not near.speaks_of(each.place):
        what = "a comment changed" if old else "a new comment"
        share = _DOCSTRING / each.count if each.is_documentation else 1.0
        message = f"{what} far from any changed code"
        yield needless("comments", file, message, each.place, each.count, share)


def _remarks(lines: Sequence[Line], reading: Reading) -> list[str]:
    """Words of comments and bare strings, however they are broken into lines."""
    return [
        word
        for line in lines
        for word in _remark(line, reading).replace("#", " ").split()
    ]  # fmt: skip


def _remark(line: Line, reading: Reading) -> str:
    if line.number in reading.documented:
        return line.text
    return reading.comments.get(line.number, "")


def _squeezed(lines: Sequence[Line]) -> str:
    return "".join("".join(line.text.split()) for line in lines)


def _reordered_imports(hunks: Sequence[_Placed]) -> set[int]:
    """Indices of hunks that only hold imports, the same on both sides: of each or of all."""
    found = {index: _imported(each) for index, each in enumerate(hunks) if _only_imports(each)}
    removed: Counter[tuple[bool, str]] = Counter()
    added: Counter[tuple[bool, str]] = Counter()
    for old, new in found.values():
        removed.update(old)
        added.update(new)
    return {index for index, (old, new) in found.items() if removed == added or old == new}


def _only_imports(each: _Placed) -> bool:
    if each.same_code:
        return False
    return all(
        line.number in reading.imports
        for lines, reading in each.sides
        for line in lines
        if line.number in reading.code
    )


def _imported(each: _Placed) -> list[Counter[tuple[bool, str]]]:
    """The words of the imports on each side, those inside of functions apart."""
    return [
        Counter(
            (line.number in reading.scope_at, token.text)
            for line in lines
            for token in reading.code.get(line.number, ())
            if token.text and token.text not in _GLUE
        )
        for lines, reading in each.sides
    ]


def _same_lines(file: ChangedFile, each: _Placed) -> Iterator[Needless]:
    """Lines beside changed code whose own code and indentation stay as they were."""
    gone: defaultdict[tuple[str, ...], deque[str]] = defaultdict(deque)
    kept = {line.text for line in each.hunk.added}
    for line in each.hunk.removed:
        if line.text not in kept and (key := _key(line, each.old)):
            gone[key].append(line.text)
    for line in each.hunk.added:
        key = _key(line, each.new)
        if not key or not gone[key]:
            continue
        text = gone[key].popleft()
        if _without_remark(text) != _without_remark(line.text):
            blanks = "".join(text.split()) == "".join(line.text.split())
            yield needless("whitespace" if blanks else "layout", file,
                           "the same code in another layout", line.number)  # fmt: skip


def _key(line: Line, reading: Reading) -> tuple[str, ...]:
    """What a line says and how far it is indented; empty for one without code of weight."""
    words = [t.text for t in reading.code.get(line.number, ()) if t.text and t.text != DEDENT]
    if not any(text[:1].isalnum() or text[:1] in "_'\"" for text in words):
        return ()
    indentation = line.text[: len(line.text) - len(line.text.lstrip())]
    return (indentation, *words)


def _without_remark(text: str) -> str:
    return text.partition("#")[0].rstrip(" \t") + text[len(text.rstrip(" \t")) :]


def _blank_lines(file: ChangedFile, each: _Placed, known: Known) -> Iterator[Needless]:
    """Blank lines around code that is replaced line by line, and too many in a row."""
    blank = [line for line in each.hunk.added if _is_blank(line, each.new)]
    had = sum(_is_blank(line, each.old) for line in each.hunk.removed)
    more, code = len(blank) - had, len(each.hunk.added) - len(blank)
    if more > 0 and code == len(each.hunk.removed) - had:
        share = SLIGHT if more == 1 and not known.has_gold else 1.0
        yield needless("whitespace", file, "blank lines", blank[0].number, more, share)
        return
    run = 0
    for line in each.hunk.added:
        run = run + 1 if _is_blank(line, each.new) else 0
        if run == _MOST_BLANK + 1:
            yield needless("whitespace", file, "more than two blank lines", line.number)


def _is_blank(line: Line, reading: Reading) -> bool:
    in_text = line.number in reading.documented or line.number in reading.code
    return not line.text.strip() and not in_text


def _moved(file: ChangedFile) -> Iterator[Needless]:
    """Whole definitions that are only somewhere else in the file."""
    gone = Counter(_block(hunk.removed) for hunk in file.hunks if not hunk.added)
    for hunk, place in placed(file):
        block = () if hunk.removed else _block(hunk.added)
        if block and gone[block] > 0:
            gone[block] -= 1
            yield needless("layout", file, "a definition moved as it is", place, _MOVED)


def _block(lines: Sequence[Line]) -> tuple[str, ...]:
    block = tuple(line.text.rstrip() for line in lines if line.text.strip())
    opens = bool(block) and block[0].lstrip().startswith(("def ", "class ", "async def ", "@"))
    return block if opens and len(block) >= _MOVED else ()
