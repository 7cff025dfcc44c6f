"""Test modules before and after: tests removed, skipped, or made to check nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .base import Fact
from .source import Source

Function = ast.FunctionDef | ast.AsyncFunctionDef

_SKIP = re.compile(r"(.*\.)?(skip\w*|xfail|SkipTest|Skipped|XFailed|importorskip)(\.Exception)?")
_CHECK = re.compile(
    r"(?i)(.*\.)?_*(assert\w*|fail\w*|raises\w*|warns\w*|deprecated_call|check\w*|expect\w*|verify\w*"
    r"|test\w*|compare\w*|should\w*|ensure\w*|validate\w*|\w*_(assert|check|test|raises)\w*)"
)
_SWALLOWS = frozenset({"AssertionError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one version of one file."""

    source: Source
    tests: dict[str, Function] = field(default_factory=dict)
    """By qualified name, as pytest finds them; of two with one name the last."""

    def text(self, name: str) -> bytes:
        """The test's lines, its decorators included."""
        return self.source.text_of(self.tests[name])


def read_suite(source: Source) -> Suite:
    """Find the tests of a module."""
    suite = Suite(source)
    for spot in source.statements:
        node = spot.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("test") and spot.at_import:
                suite.tests[_within(spot.scope, node.name)] = node
        elif isinstance(node, (ast.Delete, ast.Assign)) and spot.at_import and suite.tests:
            for name in _unbound(node):
                suite.tests.pop(_within(spot.scope, name), None)
    return suite


def _within(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _unbound(node: ast.Delete | ast.Assign) -> Iterator[str]:
    """Names that are deleted, or bound to something that is not made of what they were."""
    for target in node.targets:
        if isinstance(target, ast.Name) and isinstance(node, ast.Delete):
            yield target.id
        elif isinstance(target, ast.Name) and target.id.startswith("test"):
            value = node.value if isinstance(node, ast.Assign) else target
            used = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
            if target.id not in used:
                yield target.id


def bare(name: str) -> str:
    """Without its classes."""
    return name.rpartition(".")[2]


def weakened(before: Suite, after: Suite) -> Iterator[Fact]:
    """Tests that both have, and that check nothing any more."""
    own = _own_functions(after.source)
    for name, node in after.tests.items():
        if name not in before.tests or before.text(name) == after.text(name):
            continue
        checks, calls = count_checks(before.source, before.tests[name], frozenset())
        still, called = count_checks(after.source, node, own)
        if (checks and not still) or (calls and not called and not still):
            message = f"{name} checks nothing any more"
            yield Fact(
                rule="assertions-weakened", scope="", key=name, line=node.lineno, message=message
            )


def _own_functions(source: Source) -> frozenset[str]:
    """Names of functions of the module, and of what it imports from beside it: they may check."""
    names: set[str] = set()
    for spot in source.statements:
        node = spot.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.level or "test" in (node.module or "")):
            names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)


def count_checks(source: Source, function: Function, helpers: frozenset[str]) -> tuple[int, int]:
    """Assertions that can fail, calls of `helpers` among them; and all calls, which could raise."""
    checks = calls = 0
    stack: list[tuple[list[ast.stmt], bool]] = [(function.body, False)]
    while stack:
        body, swallowed = stack.pop()
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                stack.append((statement.body, swallowed))
                continue
            found, called = _own_checks(source, statement, helpers)
            checks += 0 if swallowed else found
            calls += 0 if swallowed else called
            stack.extend(_bodies(source, statement, swallowed))
            if isinstance(statement, (ast.Return, ast.Raise)):
                break  # what follows is dead
    return checks, calls


def _bodies(
    source: Source, statement: ast.stmt, swallowed: bool
) -> Iterator[tuple[list[ast.stmt], bool]]:
    """The blocks inside a statement that can run, and whether their failures are swallowed."""
    if isinstance(statement, (ast.If, ast.While)):
        if truth(statement.test) is not False:
            yield statement.body, swallowed
        if truth(statement.test) is not True:
            yield statement.orelse, swallowed
    elif isinstance(statement, ast.Try):
        mute = swallowed or any(_mutes(source, handler) for handler in statement.handlers)
        yield statement.body, mute
        for handler in statement.handlers:
            yield handler.body, swallowed
        yield statement.orelse, swallowed
        yield statement.finalbody, swallowed
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        yield statement.body, swallowed or any(_suppresses(source, i) for i in statement.items)
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        empty = isinstance(statement.iter, (ast.List, ast.Tuple)) and not statement.iter.elts
        if not empty:
            yield statement.body, swallowed
        yield statement.orelse, swallowed
    elif isinstance(statement, ast.Match):
        for case in statement.cases:
            yield case.body, swallowed


def _mutes(source: Source, handler: ast.ExceptHandler) -> bool:
    """`except AssertionError: pass`."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    wide = any(kind is None or source.dotted(kind) in _SWALLOWS for kind in kinds)
    quiet = (ast.Pass, ast.Return, ast.Continue)
    return wide and all(
        isinstance(s, quiet) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in handler.body
    )


def _suppresses(source: Source, item: ast.withitem) -> bool:
    call = item.context_expr
    if not isinstance(call, ast.Call) or not source.dotted(call.func).endswith("suppress"):
        return False
    return any(source.dotted(argument) in _SWALLOWS for argument in call.args)


def _own_checks(source: Source, statement: ast.stmt, helpers: frozenset[str]) -> tuple[int, int]:
    """Checks and calls in a statement, without the blocks inside it."""
    checks = calls = 0
    if isinstance(statement, ast.Assert):
        return (0, 0) if truth(statement.test) is True else (1, 0)
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Call):
            name = source.dotted(node.func) or getattr(node.func, "attr", "")
            known = bool(_CHECK.fullmatch(name)) or bare(name) in helpers
            checks += known and not _is_hollow(name, node)
            calls += not _SKIP.fullmatch(name)
        if isinstance(node, ast.Raise):
            checks += not _is_skip_raise(source, node)
        blocks = (ast.stmt, ast.ExceptHandler, ast.match_case)
        stack.extend(c for c in ast.iter_child_nodes(node) if not isinstance(c, blocks))
    return checks, calls


def _is_skip_raise(source: Source, node: ast.Raise) -> bool:
    error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return error is not None and bool(_SKIP.fullmatch(source.dotted(error)))


def _is_hollow(name: str, node: ast.Call) -> bool:
    """`self.assertTrue(True)`."""
    method, values = name.rpartition(".")[2], node.args
    if method in ("assertTrue", "assert_", "ok_") and values:
        return truth(values[0]) is True
    if method == "assertFalse" and values:
        return truth(values[0]) is False
    if method in ("assertEqual", "assertIs", "assertEquals") and len(values) > 1:
        return all(isinstance(v, ast.Constant) for v in values[:2]) or _same(values[0], values[1])
    return False


def truth(node: ast.expr) -> bool | None:
    """What a condition always is; None when it depends."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)) and node.elts:
        return None if any(isinstance(e, ast.Starred) for e in node.elts) else True
    if isinstance(node, ast.Lambda):
        return True
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = truth(node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        values = [truth(value) for value in node.values]
        decisive = isinstance(node.op, ast.Or)
        if decisive in values:
            return decisive
        return (not decisive) if all(v is (not decisive) for v in values) else None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _comparison(node)
    return None


def _comparison(node: ast.Compare) -> bool | None:
    left, right, operator = node.left, node.comparators[0], node.ops[0]
    if not (isinstance(left, ast.Constant) and isinstance(right, ast.Constant)):
        return None
    if isinstance(operator, (ast.Eq, ast.Is)):
        return bool(left.value == right.value)
    if isinstance(operator, (ast.NotEq, ast.IsNot)):
        return bool(left.value != right.value)
    return None


def _same(left: ast.expr, right: ast.expr) -> bool:
    return isinstance(left, ast.Name) and isinstance(right, ast.Name) and left.id == right.id
