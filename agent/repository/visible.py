"""Which of a task's tests its agent may know of: those that are there at the base commit.

A task with a test patch has hidden tests, whose names say as much as their text. Of its tests, an
agent may run those in files that the patch leaves alone, and of the files that it touches those
PASS_TO_PASS tests that the base commit's version defines, without their parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from patchgym.datasets.repository import patched_paths
from patchgym.datasets.task import Task


def visible_tests(task: Task, base: Mapping[str, bytes | None]) -> tuple[str, ...]:
    """Ids to run; `base` has the test files, and what the test patch touches, at the base commit.

    Parsing takes a while: call it in a thread.
    """
    if not task.test_patch.strip():
        return task.tests
    touched = patched_paths(task.test_patch)
    there = {path: data for path, data in base.items() if data is not None}
    hidden = frozenset(task.fail_to_pass)
    found: dict[str, None] = {}
    defined: dict[str, frozenset[str]] = {}
    for test in task.tests:
        path, by_file, name = test.partition("::")
        if by_file and path not in touched:
            if path in there:
                found[test] = None
        elif test not in hidden:
            files = [path] if by_file else list(there)
            for file in files:
                if file in there and file not in defined:
                    defined[file] = _defined(there[file])
            names = frozenset().union(*(defined.get(file, frozenset()) for file in files))
            if by_file:
                name = name.partition("[")[0]
                if name in names:
                    found[f"{path}::{name}"] = None
            elif _is_named(test, names):
                found[test] = None
    return tuple(found)


def _defined(data: bytes) -> frozenset[str]:
    """Functions of a module, and of its classes as `Class::function`; none if it is no Python."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found: set[str] = set()
    _collect(tree, "", found)
    return frozenset(found)


def _collect(node: ast.AST, prefix: str, found: set[str]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(prefix + child.name)
        elif isinstance(child, ast.ClassDef):
            _collect(child, f"{prefix}{child.name}::", found)
        elif not isinstance(child, ast.expr):
            _collect(child, prefix, found)


def _is_named(test: str, names: frozenset[str]) -> bool:
    """Whether an id such as `test_x (module.Class)` or `module.Class.test_x` is one of these."""
    words = set(re.findall(r"\w+", test))
    for name in names:
        parts = name.split("::")
        if len(parts) > 1 and words.issuperset(parts):
            return True
    return test in names
