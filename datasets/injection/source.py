"""A Python file to put bugs into: its tree, where every node stands, and edits on its bytes.

Mutations only ever replace spans of the file's bytes, so that comments and formatting stay.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import (
    ByteSpanPositionProvider,
    CodeRange,
    CodeSpan,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
)

Node = TypeVar("Node", bound=cst.CSTNode)


class NotEditable(ValueError):
    """A file that can't be read as Python, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Edit:
    """Bytes put in the place of others."""

    start: int
    """Offset of the first byte that goes."""
    end: int
    """Offset behind the last one."""
    text: bytes
    """What comes in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One way to put one bug into one place."""

    kind: str
    """Name of the mutation."""
    path: str
    """File, relative to the repository's root."""
    function: str
    """Qualified name of the function that the bug is in."""
    line: int
    """1-based, where the bug begins."""
    covered_by: tuple[int, int]
    """First and last line of what has to run for the bug to matter."""
    edits: tuple[Edit, ...]
    """In ascending order."""


class Source:
    """One parsed file. Raises NotEditable where it isn't Python, or isn't UTF-8."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data
        try:
            module = cst.parse_module(data)
            if module.bytes != data:
                raise NotEditable(f"{path}: it begins with a byte order mark")
            if module.encoding.replace("_", "-").lower() != "utf-8":
                raise NotEditable(f"{path}: its encoding is {module.encoding}")
            data.decode("utf-8")
        except (cst.ParserSyntaxError, SyntaxError, UnicodeError, LookupError) as error:
            raise NotEditable(f"{path}: not readable as Python") from error
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        found = wrapper.resolve_many(
            [ByteSpanPositionProvider, PositionProvider, ParentNodeProvider]
        )
        self.module = module
        self._spans = cast("Mapping[cst.CSTNode, CodeSpan]", found[ByteSpanPositionProvider])
        self._ranges = cast("Mapping[cst.CSTNode, CodeRange]", found[PositionProvider])
        self._parents = cast("Mapping[cst.CSTNode, cst.CSTNode]", found[ParentNodeProvider])

    def nodes(self, kind: type[Node]) -> Sequence[Node]:
        """All nodes of a class that stand in a function's body, in the file's order."""
        found = self._by_class.get(kind, ())
        return cast("Sequence[Node]", found)

    @cached_property
    def _by_class(self) -> dict[type[cst.CSTNode], list[cst.CSTNode]]:
        found: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}

        def walk(node: cst.CSTNode, inside: bool) -> None:
            if isinstance(node, cst.Annotation | cst.Decorator):
                return
            if inside or isinstance(node, cst.FunctionDef):
                found.setdefault(type(node), []).append(node)
            for child in node.children:
                deeper = inside or (isinstance(node, cst.FunctionDef) and child is node.body)
                walk(child, deeper)

        walk(self.module, False)
        return found

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node around a node."""
        return self._parents[node]

    def around(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Its parent, that one's parent, up to the module."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def function(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """The innermost function whose code a node is."""
        found = (each for each in self.around(node) if isinstance(each, cst.FunctionDef))
        return next(found, None)

    def name(self, node: cst.CSTNode) -> str:
        """Qualified name of the function or class that a node is in, or is."""
        scopes = [node, *self.around(node)]
        names = [
            each.name.value for each in scopes if isinstance(each, cst.FunctionDef | cst.ClassDef)
        ]
        return ".".join(reversed(names))

    def span(self, node: cst.CSTNode, *, parens: bool = False) -> tuple[int, int]:
        """Byte offsets of a node; its own parentheses are only in it when asked for."""
        found = self._spans[node]
        start, end = found.start, found.start + found.length
        if parens:
            left = sum(len(self.code(each).encode()) for each in getattr(node, "lpar", ()))
            right = sum(len(self.code(each).encode()) for each in getattr(node, "rpar", ()))
            return start - left, end + right
        return start, end

    def code(self, node: cst.CSTNode) -> str:
        """A node as it is written, parentheses included."""
        return self.module.code_for_node(node)

    def lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last line of a node, 1-based."""
        found = self._ranges[node]
        return found.start.line, found.end.line

    def whole_lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """Byte offsets of all lines that a statement takes, with the comments right above it."""
        first, last = self.lines(node)
        while first > 1 and self._text_of(first - 1).lstrip().startswith(b"#"):
            first -= 1
        return self._starts[first - 1], self._starts[last]

    def line_start(self, line: int) -> int:
        """Byte offset at which a line begins."""
        return self._starts[line - 1]

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return [*starts, len(self.data)]

    def _text_of(self, line: int) -> bytes:
        return self.data[self._starts[line - 1] : self._starts[line]]

    def statement(self, node: cst.CSTNode) -> tuple[int, int]:
        """Lines of the statement that a node is in; of a compound one, up to its body."""
        for each in (node, *self.around(node)):
            if isinstance(each, cst.SimpleStatementLine | cst.SimpleStatementSuite):
                return self.lines(each)
            body = getattr(each, "body", None)
            if isinstance(each, cst.BaseCompoundStatement | cst.ExceptHandler):
                first = self.lines(each)[0]
                if isinstance(body, cst.IndentedBlock):
                    return first, max(first, self.lines(body.body[0])[0] - 1)
                return self.lines(each)
        return self.lines(node)

    def place(
        self,
        kind: str,
        node: cst.CSTNode,
        *edits: Edit,
        covered_by: tuple[int, int] | None = None,
    ) -> Place:
        """A bug at a node; by default its statement has to run for the bug to matter."""
        return Place(
            kind=kind,
            path=self.path,
            function=self.name(node),
            line=self.lines(node)[0],
            covered_by=covered_by or self.statement(node),
            edits=tuple(sorted(edits)),
        )

    def replace(self, node: cst.CSTNode, text: str, *, parens: bool = False) -> Edit:
        """Put a text where a node is."""
        start, end = self.span(node, parens=parens)
        return Edit(start=start, end=end, text=text.encode())

    def remove(self, statement: cst.CSTNode) -> Edit:
        """Take a statement away, with all its lines."""
        start, end = self.whole_lines(statement)
        return Edit(start=start, end=end, text=b"")


def apply(data: bytes, edits: Sequence[Edit]) -> bytes | None:
    """The bytes with the edits; None when two of them are about the same bytes."""
    pieces, at = [], 0
    for edit in sorted(edits):
        if edit.start < at:
            return None
        pieces += [data[at : edit.start], edit.text]
        at = edit.end
    return b"".join([*pieces, data[at:]])


def compiles(data: bytes) -> bool:
    """Whether Python takes a file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `x is 1` and the like
            compile(data, "mutant.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
