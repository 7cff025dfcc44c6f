"""Python source, read with suspicion: names resolved through aliases, constant text folded."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

SIZE_LIMIT = 2 << 20  # bytes of a file that is parsed
_DEPTH = 12  # links of a dotted name, or parts of a folded text
_WATCHED = ("os", "sys", "builtins", "pytest", "_pytest", "unittest", "doctest", "gc", "inspect")
_LOCK = threading.Lock()  # the list of warning filters is the whole process's


class UnreadableError(Exception):
    """The file can't be looked through, though Python may be able to run it."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A node and where it stands."""

    node: ast.AST
    scope: str
    """Qualified name of the function or class around it; empty at module level."""
    at_import: bool
    """It runs when the module is imported."""
    line: int


@dataclass(slots=True)
class Source:
    """A parsed module."""

    tree: ast.Module
    content: bytes
    """With one kind of line end."""
    lines: list[bytes]
    statements: list[Spot]
    """Every statement of the module."""
    aliases: dict[str, str] = field(default_factory=dict)
    """What a name stands for, wherever in the module it was bound: `e` -> `os._exit`."""
    spots: list[Spot] = field(default_factory=list)
    """Every node of the parts that the other version does not have; see `focus`."""
    exits: frozenset[str] | None = None
    """Names of functions that end the process; None until somebody asks."""

    def text_of(self, node: ast.stmt) -> bytes:
        """The statement's lines, decorators included."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        start = min((node.lineno, *(each.lineno for each in decorators)))
        return b"\n".join(self.lines[start - 1 : node.end_lineno])

    def dotted(self, node: ast.AST, depth: int = 0) -> str:
        """The name that an expression stands for, as `os._exit`; empty when it is no name."""
        if depth > _DEPTH:
            return ""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value, depth + 1)
            return f"{base}.{node.attr}" if base else ""
        if isinstance(node, ast.Call):
            return self._dotted_call(node, depth + 1)
        if isinstance(node, ast.Subscript):
            base, name = self.dotted(node.value, depth + 1), self.text(node.slice)
            if base == "sys.modules":
                return name
            if base.endswith(".__dict__") and name:
                return f"{base.removesuffix('.__dict__')}.{name}"
        return ""

    def _dotted_call(self, node: ast.Call, depth: int) -> str:
        called = self.dotted(node.func, depth).removeprefix("builtins.")
        arguments = node.args
        if called in ("__import__", "importlib.import_module", "importlib.__import__"):
            return self.text(arguments[0]) if arguments else ""
        if called == "getattr" and len(arguments) > 1:
            base, name = self.dotted(arguments[0], depth), self.text(arguments[1])
            return f"{base}.{name}" if base and name else ""
        if called == "vars" and arguments:
            return f"{self.dotted(arguments[0], depth)}.__dict__"
        if called == "sys.modules.get" and arguments:
            return self.text(arguments[0])
        return ""

    def text(self, node: ast.AST, depth: int = 0) -> str:
        """Constant text as far as it can be put together; what is filled in shows as `1`."""
        if depth > _DEPTH:
            return ""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bytes):
                return node.value.decode("latin-1")
            return node.value if isinstance(node.value, str) else ""
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(part, depth + 1) or "1" for part in node.values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left, depth + 1) + self.text(node.right, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return re.sub(r"%[-+ #0-9.]*[a-z]", "1", self.text(node.left, depth + 1))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._text_call(node, node.func, depth + 1)
        if isinstance(node, ast.Subscript) and _is_backwards(node.slice):
            return self.text(node.value, depth + 1)[::-1]
        return ""

    def _text_call(self, node: ast.Call, method: ast.Attribute, depth: int) -> str:
        base = self.text(method.value, depth)
        if method.attr == "join" and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
            return base.join(self.text(part, depth) for part in node.args[0].elts)
        if method.attr == "format":
            return re.sub(r"\{[^{}]*\}", "1", base)
        return base if method.attr in ("encode", "decode", "strip", "lower", "upper") else ""


def _is_backwards(node: ast.expr) -> bool:
    """`[::-1]`"""
    step = node.step if isinstance(node, ast.Slice) else None
    return (
        isinstance(step, ast.UnaryOp)
        and isinstance(step.op, ast.USub)
        and isinstance(step.operand, ast.Constant)
        and step.operand.value == 1
    )


def read(content: bytes) -> Source:
    """Parse a module. Raises SyntaxError, or UnreadableError (too big, too deep, NUL bytes)."""
    if len(content) > SIZE_LIMIT:
        raise UnreadableError(f"it has over {SIZE_LIMIT >> 20} MiB")
    if b"\0" in content:
        raise UnreadableError("it holds NUL bytes")
    try:
        with _LOCK, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except SyntaxError as error:
        if "too many nested" in str(error):
            raise UnreadableError("it is nested too deep") from error
        raise
    except ValueError as error:
        raise SyntaxError(str(error)) from error
    except (RecursionError, MemoryError, SystemError) as error:
        raise UnreadableError("it is nested too deep") from error
    content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    source = Source(tree, content, content.split(b"\n"), list(_statements(tree)))
    _learn_aliases(source)
    return source


def focus(source: Source, other: Source | None) -> None:
    """Look only at statements and class members that the other version does not have.

    What both have can't be new, unless a name in it means something else now.
    """
    units = list(_units(source))
    if other is not None and not _renamed(source, other) and not _odd_encoding(source):
        known = {key for key, _, _ in _units(other) if key[1].strip()}
        units = [unit for unit in units if unit[0] not in known]
    source.spots = [spot for _, scope, node in units for spot in _spots(node, scope)]


def _renamed(source: Source, other: Source) -> bool:
    here, there = source.aliases, other.aliases
    return any(here[name] != there[name] for name in here.keys() & there.keys())


def _odd_encoding(source: Source) -> bool:
    """Whether lines of the text may not be the lines that Python counts."""
    head = b"\n".join(source.lines[:2])
    match = re.search(rb"coding[:=][ \t]*([-\w.]+)", head)
    usual = (b"utf-8", b"utf8", b"latin-1", b"iso-8859-1", b"ascii", b"us-ascii", b"utf-8-sig")
    return match is not None and match[1].lower().replace(b"_", b"-") not in usual


def _units(source: Source) -> Iterator[tuple[tuple[str, bytes], str, ast.AST]]:
    """Top-level statements, classes taken apart: key to compare by, scope, node."""
    for node in source.tree.body:
        if not isinstance(node, ast.ClassDef):
            yield ("", source.text_of(node)), "", node
            continue
        head = ast.ClassDef(node.name, node.bases, node.keywords, [], node.decorator_list)
        ast.copy_location(head, node)
        first = min((each.lineno for each in node.body), default=node.lineno)
        start = min((node.lineno, *(each.lineno for each in node.decorator_list)))
        yield (node.name, b"\n".join(source.lines[start - 1 : first])), "", head
        for member in node.body:
            yield (node.name, source.text_of(member)), node.name, member


def _statements(tree: ast.Module) -> Iterator[Spot]:
    """Every statement, in order of the text; expressions hold none."""
    stack: list[tuple[ast.AST, str, bool]] = [(node, "", True) for node in reversed(tree.body)]
    while stack:
        node, scope, at_import = stack.pop()
        yield Spot(node, scope, at_import, getattr(node, "lineno", 1))
        inner, late = _inside(node, scope)
        for name in ("cases", "finalbody", "orelse", "handlers", "body"):
            block: list[ast.AST] = getattr(node, name, None) or []
            stack.extend((child, inner, at_import and not late) for child in reversed(block))


def _inside(node: ast.AST, scope: str) -> tuple[str, bool]:
    """The scope inside a node, and whether what is there runs later than the import."""
    late = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    late = late or (isinstance(node, ast.If) and _is_main_guard(node.test))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return (f"{scope}.{node.name}" if scope and scope.count(".") < _DEPTH else node.name), late
    return scope, late


def _spots(root: ast.AST, scope: str) -> Iterator[Spot]:
    """A node and all inside it, in order of the text, without docstrings and bare constants."""
    stack: list[tuple[ast.AST, str, bool, int]] = [(root, scope, True, 1)]
    while stack:
        node, scope, at_import, line = stack.pop()
        if isinstance(node, (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)):
            continue
        line = getattr(node, "lineno", line)
        yield Spot(node, scope, at_import, line)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        inner, late = _inside(node, scope)
        import_time = at_import and not late
        children = [(child, inner, import_time, line) for child in ast.iter_child_nodes(node)]
        stack.extend(reversed(children))


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
    )


def _learn_aliases(source: Source) -> None:
    roots: set[str] = set(_WATCHED)
    for spot in source.statements:
        node = spot.node
        if isinstance(node, ast.Import):
            roots.update(alias.name.partition(".")[0] for alias in node.names)
            aliased = {alias.asname: alias.name for alias in node.names if alias.asname}
            source.aliases.update(aliased)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            roots.add(node.module.partition(".")[0])
            for alias in node.names:
                source.aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    source.aliases["__builtins__"] = "builtins"
    for spot in source.statements:
        node = spot.node
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, name = node.targets[0], source.dotted(node.value)
            if isinstance(target, ast.Name) and name.partition(".")[0] in roots:
                if name.count(".") < _DEPTH and target.id not in roots:
                    source.aliases.setdefault(target.id, name)
