"""Functions in a module's source text."""

from __future__ import annotations

import ast


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The last top-level function called `name`: what importing the module would see."""
    found = None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            found = node
    return found


def replace_function(source: str, name: str, code: str) -> str:
    """`source` with the function `name` replaced by `code`; raises ValueError without it."""
    node = find_function(ast.parse(source), name)
    if node is None or node.end_lineno is None:
        raise ValueError(f"no function `{name}` at the top level")
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:first], code, *lines[node.end_lineno :]])
