"""Wrong defaults: another value, or one list for all calls."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from patchgym.datasets.injection.source import Place, Source

from .constants import SHORT, TRUTH


def default_value(source: Source) -> Iterator[Place]:
    """A parameter's default is another truth value, number or text."""
    for function in source.nodes(cst.FunctionDef):
        for parameter in _parameters(function):
            if parameter.default is None:
                continue
            other = _other(parameter.default)
            if other:
                edit = source.replace(parameter.default, other)
                lines = source.lines(function.body)
                yield source.place("default-value", parameter, edit, covered_by=lines)


def mutable_default(source: Source) -> Iterator[Place]:
    """`x=None` with `if x is None: x = []` becomes `x=[]`."""
    for function in source.nodes(cst.FunctionDef):
        body = function.body.body
        for parameter in _parameters(function):
            if not isinstance(parameter.default, cst.Name) or parameter.default.value != "None":
                continue
            for statement in body:
                value = _fresh(source, statement, parameter.name.value)
                if value and len(body) > 1:
                    yield source.place(
                        "mutable-default",
                        parameter,
                        source.replace(parameter.default, value),
                        source.remove(statement),
                        covered_by=source.lines(function.body),
                    )


def _parameters(function: cst.FunctionDef) -> tuple[cst.Param, ...]:
    found = function.params
    return (*found.posonly_params, *found.params, *found.kwonly_params)


def _other(value: cst.BaseExpression) -> str:
    if isinstance(value, cst.Name):
        return TRUTH.get(value.value, "")
    if isinstance(value, cst.Integer) and value.value.isdecimal():
        return str(int(value.value) + 1)
    if isinstance(value, cst.SimpleString) and len(value.value) <= SHORT and not value.prefix:
        quote = value.quote
        return f"{quote}{quote}" if value.raw_value else f"{quote} {quote}"
    return ""


def _fresh(source: Source, statement: cst.CSTNode, name: str) -> str:
    """The display of `if NAME is None: NAME = []`, else nothing."""
    if not isinstance(statement, cst.If) or statement.orelse is not None:
        return ""
    if source.code(statement.test).strip("()") not in (f"{name} is None", f"not {name}"):
        return ""
    lines = statement.body.body
    if len(lines) != 1 or not isinstance(lines[0], cst.SimpleStatementLine):
        return ""
    (only,) = lines[0].body if len(lines[0].body) == 1 else (None,)
    if not isinstance(only, cst.Assign) or len(only.targets) != 1:
        return ""
    value = only.value
    display = isinstance(value, cst.List | cst.Dict) and not value.elements
    made = isinstance(value, cst.Call) and not value.args and isinstance(value.func, cst.Name)
    known = made and source.code(value) in ("list()", "dict()", "set()")
    target = source.code(only.targets[0].target) == name
    return source.code(value) if target and (display or known) else ""
