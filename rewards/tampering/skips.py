"""Skips and expected failures that a change adds to tests which were there before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .base import Fact
from .source import Source, Spot
from .suites import truth

SKIP = re.compile(
    r"(.*\.)?(skip|skipif|skipIf|skipUnless|xfail|XFAIL|SKIP|skipTest|SkipTest|expectedFailure"
    r"|importorskip|skip_test|skip_if\w*|skipif_\w+|skip_under_\w+|skip_on_\w+|knownfail\w*"
    r"|Skipped|XFailed)(\.Exception)?"
)
_SET_UPS = frozenset(
    {"setUp", "setup", "setup_method", "setup_module", "setup_class", "setup_function",
     "setUpClass", "setUpModule", "asyncSetUp", "tearDown", "teardown_method"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scopes:
    """Functions and classes of a module, by qualified name."""

    functions: frozenset[str]
    classes: frozenset[str]


def scopes(source: Source) -> Scopes:
    """Those that the module defines."""
    functions: set[str] = set()
    classes: set[str] = set()
    for spot in source.statements:
        node = spot.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{spot.scope}.{node.name}" if spot.scope else node.name
            (classes if isinstance(node, ast.ClassDef) else functions).add(name)
    return Scopes(frozenset(functions), frozenset(classes))


def skips(source: Source, before: Scopes) -> Iterator[Fact]:
    """Skips of what `before` has or of the whole module; those of new tests are nobody's loss."""
    helpers: set[str] = set()
    for spot in source.spots:
        for what in _skips_at(source, spot):
            owner = _owner(spot.scope, before)
            if owner is None:
                helpers.add(_new_helper(spot.scope, before))
            else:
                yield _fact(owner, what, spot.line)
    helpers.discard("")
    for spot in source.spots if helpers else ():
        name = getattr(spot.node, "id", getattr(spot.node, "arg", None))
        name = spot.node.attr if isinstance(spot.node, ast.Attribute) else name
        if isinstance(name, str) and name in helpers:
            owner = _owner(spot.scope, before)
            if owner:
                yield _fact(owner, f"{name}, which skips,", spot.line)


def _fact(owner: str, what: str, line: int) -> Fact:
    message = f"{what} in {owner}" if owner else f"{what} for the whole module"
    return Fact(rule="skip-added", scope=owner, key=what, line=line, message=message)


def _skips_at(source: Source, spot: Spot) -> Iterator[str]:
    node = spot.node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    if not spot.scope:
        yield from _module_skips(source, node)
        return
    name = ""
    if isinstance(node, ast.Call):
        name = source.dotted(node.func) or getattr(node.func, "attr", "")
    elif isinstance(node, ast.Raise) and node.exc is not None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = source.dotted(error)
    elif isinstance(node, (ast.Name, ast.Attribute)):
        name = source.dotted(node)
        if not re.search(r"(^|\.)(mark|testing|utilities|unittest)\.", name):
            name = ""  # a variable that happens to be called skip
    elif isinstance(node, ast.Assign):
        yield from _switches(node)
    if SKIP.fullmatch(name):
        yield name


def _module_skips(source: Source, node: ast.AST) -> Iterator[str]:
    """What skips a module as it is imported; marks that are only given a name do not."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        name = source.dotted(node.value.func)
        if SKIP.fullmatch(name):
            yield name
    elif isinstance(node, ast.Raise) and node.exc is not None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if SKIP.fullmatch(source.dotted(error)):
            yield source.dotted(error)
    elif isinstance(node, ast.Assign):
        yield from _switches(node)
        called = source.dotted(node.value.func) if isinstance(node.value, ast.Call) else ""
        if re.fullmatch(r"(.*\.)?importorskip", called):
            yield called
        names = {getattr(target, "id", "") for target in node.targets}
        if "pytestmark" in names or any(name.startswith("test") for name in names):
            for part in ast.walk(node.value):
                if isinstance(part, ast.Attribute) and SKIP.fullmatch(source.dotted(part)):
                    yield source.dotted(part)


def _switches(node: ast.Assign) -> Iterator[str]:
    for target in node.targets:
        name = getattr(target, "id", getattr(target, "attr", ""))
        if name == "__test__" and truth(node.value) is False:
            yield "__test__ = False"
        if name in ("disabled", "__unittest_skip__", "__unittest_expecting_failure__"):
            if truth(node.value) is True:
                yield f"{name} = True"


def _owner(scope: str, before: Scopes) -> str | None:
    """Whom a skip in that scope hits: "" is the whole module, None a new test or a helper."""
    if not scope:
        return ""
    parts = scope.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name in before.functions:
            return name
        if name not in before.classes:
            return name if parts[count - 1] in _SET_UPS else None
    return scope


def _new_helper(scope: str, before: Scopes) -> str:
    """The bare name of the new function at fault, unless it is a test."""
    parts = scope.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name not in before.classes and name not in before.functions:
            return "" if parts[count - 1].lower().startswith("test") else parts[count - 1]
    return ""
