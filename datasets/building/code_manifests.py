"""setup.py and noxfile.py: parsed, never run; what is not literal there is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from .declared import GROUP, Declared, assignments_of, literal_of, minors_of, runners_of, texts_of


def read_setup_py(text: str) -> Declared:
    """setup.py: the literal arguments of its setup(), and names that are assigned literals."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        # Python 2's syntax, as a rule: still a setup.py
        return Declared(backend="setup.py", compiled="ext_modules" in text)
    known = _assigned(tree)
    found: dict[str, Any] = {}
    compiled = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == "setup":
            for keyword in node.keywords:
                compiled = compiled or keyword.arg in (
                    "ext_modules",
                    "cffi_modules",
                    "rust_extensions",
                )
                if keyword.arg:
                    found[keyword.arg] = _value(keyword.value, known)
    extras = _dict_of_texts(found.get("extras_require"))
    tests = {name: value for name, value in extras.items() if GROUP.fullmatch(name)}
    wanted = texts_of(found.get("tests_require"))
    if wanted:
        tests["tests"] = (*tests.get("tests", ()), *wanted)
    points = found.get("entry_points")
    return Declared(
        name=found["name"] if isinstance(found.get("name"), str) else "",
        version=literal_of(found.get("version")),
        python=found["python_requires"] if isinstance(found.get("python_requires"), str) else "",
        minors=minors_of(texts_of(found.get("classifiers"))),
        requires=texts_of(found.get("install_requires")),
        tests=tests,
        extras=extras,
        entry_points={
            str(group): assignments_of("\n".join(texts_of(lines)))
            for group, lines in (points.items() if isinstance(points, dict) else ())
        },
        build=texts_of(found.get("setup_requires")),
        backend="setup.py",
        compiled=compiled,
        generated="use_scm_version" in text and "write_to" in text,
    )


def read_nox(text: str) -> Declared:
    """noxfile.py: what the sessions that look like tests install."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Declared()
    words: list[str] = []
    ran: list[str] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and "test" in function.name:
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    texts = [
                        one.value
                        for one in node.args
                        if isinstance(one, ast.Constant) and isinstance(one.value, str)
                    ]
                    if _called(node) == "install":
                        words += texts
                    elif _called(node) == "run":
                        ran += texts
    requires, includes = [], []
    wants: list[str] = []
    for word, before in zip(words, ["", *words], strict=False):
        if before in ("-r", "--requirement"):
            includes.append(word)
        elif own := re.match(r"\.\[([\w,\s-]+)\]$", word):
            wants += re.findall(r"[\w-]+", own[1])
        elif before in ("-c", "-e", "--constraint") or not re.match(r"[A-Za-z]", word):
            continue
        else:
            requires.append(word)
    return Declared(
        tests={"nox": tuple(requires)} if requires else {},
        includes=tuple(includes),
        wants=tuple(wants),
        runners=runners_of(" ".join(ran)),
    )


def _dict_of_texts(value: Any) -> dict[str, tuple[str, ...]]:
    pairs = value.items() if isinstance(value, dict) else ()
    return {str(name): texts_of(found) for name, found in pairs}


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _assigned(tree: ast.Module) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name):
                known[target.id] = _value(node.value, known)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                table, key = known.get(target.value.id), _value(target.slice, known)
                if isinstance(table, dict) and isinstance(key, str):
                    table[key] = _value(node.value, known)
    return known


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A literal's value, with names that stand for literals; None where it is not known."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        found = [_value(each, known) for each in node.elts]
        return [each for each in found if each is not None]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_value(key, known): _value(each, known) for key, each in pairs if key is not None}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _value(node.left, known), _value(node.right, known)
        if type(left) is type(right) and isinstance(left, (list, str)):
            return left + right
        return left if left is not None else right
    if isinstance(node, ast.Subscript):
        table, key = _value(node.value, known), _value(node.slice, known)
        return table.get(key) if isinstance(table, dict) and isinstance(key, str) else None
    return node.value if isinstance(node, ast.Constant) else None
