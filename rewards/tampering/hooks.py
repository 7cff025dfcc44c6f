"""Hooks and plugins of pytest: in conftest.py, and in code that could be loaded as a plugin."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .base import Fact
from .source import Source, Spot

_HOOK = re.compile(r"pytest_(?!plugins$)[a-z_]+")
_REGISTERS = re.compile(r"(.*\.)?(pluginmanager|plugin_manager|pm)\.(\w*register|import_plugin)")
_IGNORES = frozenset({"collect_ignore", "collect_ignore_glob"})


def hooks(source: Source) -> Iterator[Fact]:
    """Every hook with its body as the key, so that a changed one is a new one."""
    for spot in source.spots:
        node = spot.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if _HOOK.fullmatch(node.name) or any(_is_impl(source, d) for d in node.decorator_list):
                yield _fact("pytest-hook", spot, f"the hook {node.name}", ast.dump(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.asname or alias.name
                if _HOOK.fullmatch(name) and "." not in name and isinstance(node, ast.ImportFrom):
                    yield _fact("pytest-hook", spot, f"imports the hook {name}")
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            yield from _bound(spot, node)
        elif isinstance(node, ast.Call):
            name = source.dotted(node.func) or getattr(node.func, "attr", "")
            if _REGISTERS.fullmatch(name):
                yield _fact("pytest-hook", spot, f"{name}: registers a plugin")


def hidden_bindings(source: Source) -> Iterator[Fact]:
    """How a conftest.py gets hooks without writing their names."""
    for spot in source.spots:
        node = spot.node
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield _fact("pytest-hook", spot, f"imports all names of {node.module or '.'}")
        elif isinstance(node, ast.Call) and spot.at_import:
            if source.dotted(node.func) in ("globals", "vars", "locals"):
                yield _fact("pytest-hook", spot, "binds names by globals()")


def _bound(spot: Spot, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[Fact]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        name = getattr(target, "id", getattr(target, "attr", ""))
        if name == "pytest_plugins":
            yield _fact("test-plugin", spot, "pytest_plugins", ast.dump(node))
        elif name in _IGNORES or (isinstance(target, ast.Name) and _HOOK.fullmatch(name)):
            if not spot.scope:
                yield _fact("pytest-hook", spot, name, ast.dump(node))


def _is_impl(source: Source, decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return source.dotted(called) in ("pytest.hookimpl", "pluggy.HookimplMarker")


def _fact(rule: str, spot: Spot, message: str, key: str = "") -> Fact:
    return Fact(rule=rule, scope=spot.scope, key=key or message, line=spot.line, message=message)
