"""Python source as tokens by line, so that lines can be compared as the interpreter sees them.

Bare strings, such as docstrings, are set apart like comments. Reading takes linear time: files and
lines past a limit, and what the tokenizer refuses, are not read.
"""

from __future__ import annotations

import io
import keyword
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from tokenize import TokenInfo

SIZE_LIMIT = 1 << 20
"""Bytes of a file that is read."""
LINE_LIMIT = 2_000
"""Characters of a line: the tokenizer's patterns take quadratic time on hostile ones."""

_LAYOUT = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
_ASIDE = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})
_STRINGS = frozenset(
    number for number, name in tokenize.tok_name.items()
    if name == "STRING" or name.startswith(("FSTRING", "TSTRING"))
)  # fmt: skip
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_BINDERS = frozenset({"def", "class", "as", "for", "global", "nonlocal", "lambda"})


NEWLINE, DEDENT = "\n", "<"
"""Texts of the tokens that end a statement and a block."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token, or the part of a longer string that stands on one line."""

    text: str
    """With one kind of quotes; a comma that may go is empty."""
    name: bool = False
    """An identifier, no keyword."""
    binds: bool = False
    """It gives the name its meaning: a parameter, a target, what def and class define."""
    shared: bool = False
    """Others may know the name: an attribute, what def and class define."""


@dataclass(slots=True)
class Scope:
    """A function or a class, decorators left out."""

    start: int
    end: int = 0
    parent: int = -1
    """Index of the scope around it; -1: the module."""


@dataclass(slots=True)
class Reading:
    """A file that was read; everything by line number, from 1."""

    code: dict[int, list[Token]] = field(default_factory=dict)
    """Lines without code are not in it."""
    comments: dict[int, str] = field(default_factory=dict)
    documented: set[int] = field(default_factory=set)
    """Lines of bare strings."""
    imports: set[int] = field(default_factory=set)
    """Lines of import statements."""
    statement_at: dict[int, int] = field(default_factory=dict)
    """First line of the statement that a line continues, of statements with several."""
    names: dict[str, list[int]] = field(default_factory=dict)
    """The lines of every identifier."""
    scopes: list[Scope] = field(default_factory=list)
    scope_at: dict[int, int] = field(default_factory=dict)
    """Index of the innermost scope of a line; not in it: the module."""


def read_python(content: bytes) -> Reading | None:
    """The file as tokens; None when it is too large or no Python."""
    if len(content) > SIZE_LIMIT:
        return None
    text = content.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    if any(len(line) > LINE_LIMIT for line in text.split("\n")):
        return None
    try:
        tokens = _tokens(text)
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    reading = Reading()
    for each in tokens:
        if each.type == tokenize.COMMENT:
            reading.comments[each.start[0]] = each.string
    _add_scopes(reading, tokens)
    for statement in _statements(tokens):
        _add_statement(reading, statement)
    return reading


def _tokens(text: str) -> list[TokenInfo]:
    """All tokens. Ends at the first that is none: what follows could take quadratic time."""
    tokens = []
    for each in tokenize.generate_tokens(io.StringIO(text, newline="\n").readline):
        if each.type == tokenize.ERRORTOKEN and each.string.strip(" "):
            raise SyntaxError(f"no token: {each.string!r}")
        tokens.append(each)
    return tokens


def _statements(tokens: list[TokenInfo]) -> Iterator[list[TokenInfo]]:
    """The tokens but comments and the like, by logical line; every dedent by itself."""
    statement: list[TokenInfo] = []
    for each in tokens:
        if each.type in _ASIDE or each.type in (tokenize.ERRORTOKEN, tokenize.INDENT):
            continue
        statement.append(each)
        if each.type in _LAYOUT:
            yield statement
            statement = []
    if statement:
        yield statement


def _add_statement(reading: Reading, statement: list[TokenInfo]) -> None:
    """A block's end goes to its last line of code; its beginning follows from the colon."""
    first, last = statement[0], statement[-1]
    lines = range(first.start[0], last.end[0] + 1)
    if first.type == tokenize.DEDENT:
        if reading.code:
            reading.code[next(reversed(reading.code))].append(Token(DEDENT))
    elif first.type in _STRINGS and all(
        each.type in _STRINGS or each.type == tokenize.NEWLINE for each in statement
    ):
        reading.documented.update(lines)
    else:
        if first.string in ("import", "from"):
            reading.imports.update(lines)
        _add_code(reading, statement)


def _add_code(reading: Reading, statement: list[TokenInfo]) -> None:
    first, last = statement[0].start[0], statement[-1].end[0]
    if first < last:
        reading.statement_at.update(dict.fromkeys(range(first, last + 1), first))
    spare = _spare_commas(statement)
    bindings = _bindings(statement)
    for place, each in enumerate(statement):
        line = each.start[0]
        if each.type in _STRINGS:
            for offset, part in enumerate(_string_parts(each)):
                reading.code.setdefault(line + offset, []).append(Token(part))
            continue
        is_name = each.type == tokenize.NAME and not keyword.iskeyword(each.string)
        if is_name:
            reading.names.setdefault(each.string, []).append(line)
        text = "" if place in spare else each.string
        text = NEWLINE if each.type == tokenize.NEWLINE or text == ";" else text
        before = statement[place - 1].string if place else ""
        shared = is_name and before in (".", "def", "class")
        token = Token(text, is_name, place in bindings, shared)
        reading.code.setdefault(line, []).append(token)


def _string_parts(token: TokenInfo) -> list[str]:
    """The string by lines; one on a single line with double quotes, where that is the same."""
    parts = token.string.split("\n")
    body = token.string.lstrip("rRbBuUfFtT")
    if len(parts) > 1 or not body[:1] or body[0] not in "'\"":
        return parts
    prefix = token.string[: len(token.string) - len(body)].lower()
    inner = body[3:-3] if body[:3] in ("'''", '"""') and len(body) >= 6 else body[1:-1]
    if "'" in inner or '"' in inner or "\\" in inner:
        return parts
    return [f'{prefix}"{inner}"']


def _spare_commas(statement: list[TokenInfo]) -> set[int]:
    """Places of commas before a closing bracket that mean nothing: not that of `(x,)`."""
    spare: set[int] = set()
    stack: list[tuple[bool, int]] = []  # may hold one spare comma alone; commas so far
    for place, each in enumerate(statement):
        if each.string in _OPENING and each.type == tokenize.OP:
            before = statement[place - 1] if place else None
            after_value = before is not None and (
                before.string in (")", "]")
                or (before.type == tokenize.NAME and not keyword.iskeyword(before.string))
            )
            stack.append(((each.string == "(") == after_value or each.string == "{", 0))
        elif each.string in _CLOSING and each.type == tokenize.OP and stack:
            alone, commas = stack.pop()
            if statement[place - 1].string == "," and (alone or commas > 1):
                spare.add(place - 1)
        elif each.string == "," and stack:
            stack[-1] = (stack[-1][0], stack[-1][1] + 1)
    return spare


def _bindings(statement: list[TokenInfo]) -> set[int]:
    """Places of names that are bound: what def, class, for, as and import name, parameters, and
    everything left of an assignment's last `=`."""
    found: set[int] = set()
    header = bool(statement) and any(each.string == "def" for each in statement[:2])
    depth, assigned, in_for = 0, 0, False
    for place, (before, each) in enumerate(pairwise([None, *statement])):
        assert each is not None
        depth += each.string in _OPENING
        depth -= each.string in _CLOSING
        if each.type != tokenize.NAME:
            if depth == 0 and each.string in ("=", ":") and not header:
                assigned = place if each.string == "=" else assigned
            if each.string == ":=" and place:
                found.add(place - 1)
            continue
        in_for = each.string == "for" or (in_for and each.string != "in")
        opened = before is not None and (
            before.string in _BINDERS
            or (header and depth == 1 and before.string in ("(", ",", "*", "**"))
        )
        if opened or (in_for and each.string != "for"):
            found.add(place)
    return found | set(range(assigned))


def _add_scopes(reading: Reading, tokens: list[TokenInfo]) -> None:
    """Find where functions and classes begin and end, and which one each line is in."""
    open_scopes: list[tuple[Scope, int, int]] = []  # itself, its index, depth around it
    depth, last, place, after_async = 0, 0, 0, False
    for each in tokens:
        if each.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if each.type == tokenize.INDENT else -1
        elif each.type == tokenize.NEWLINE:
            last, place = each.start[0], 0
        elif each.type not in _ASIDE:
            while place == 0 and open_scopes and open_scopes[-1][2] >= depth:
                open_scopes.pop()[0].end = last
            if each.string in ("def", "class") and (place == 0 or after_async):
                scope = Scope(start=each.start[0], parent=open_scopes[-1][1] if open_scopes else -1)
                open_scopes.append((scope, len(reading.scopes), depth))
                reading.scopes.append(scope)
            after_async = place == 0 and each.string == "async"
            place += 1
    for scope, _, _ in open_scopes:
        scope.end = max(last, scope.start)
    _place_lines(reading)


def _place_lines(reading: Reading) -> None:
    """Fill `scope_at`: inner scopes come later and win. Nesting is limited by the tokenizer."""
    for index, scope in enumerate(reading.scopes):
        for line in range(scope.start, scope.end + 1):
            reading.scope_at[line] = index
