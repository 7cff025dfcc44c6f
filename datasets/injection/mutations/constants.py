"""Wrong constants: off by one, another number, text or truth value, a slice's end."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from patchgym.datasets.injection.source import Place, Source

SHORT = 24  # characters of a text that may be taken for another
TRUTH = {"True": "False", "False": "True"}


def off_by_one(source: Source) -> Iterator[Place]:
    """A number is one too large or too small; `x + 1` becomes `x`."""
    for number in source.nodes(cst.Integer):
        around = source.parent(number)
        if not number.value.isdecimal() or isinstance(around, cst.Param | cst.Slice | cst.Arg):
            continue
        value = int(number.value)
        others = (value + 1, value - 1) if value else (1,)
        for other in others:
            yield source.place("off-by-one", number, source.replace(number, str(other)))
    for node in source.nodes(cst.BinaryOperation):
        one = isinstance(node.right, cst.Integer) and node.right.value == "1"
        if one and isinstance(node.operator, cst.Add | cst.Subtract):
            edit = source.replace(node, source.code(node.left))
            yield source.place("off-by-one", node, edit)


def constant(source: Source) -> Iterator[Place]:
    """A truth value is turned; a text is taken for another one of the same function."""
    for name in source.nodes(cst.Name):
        other = TRUTH.get(name.value)
        if other and not isinstance(source.parent(name), cst.Param):
            yield source.place("constant", name, source.replace(name, other))
    for number in source.nodes(cst.Integer):
        if number.value.isdecimal() and isinstance(source.parent(number), cst.Arg):
            value = int(number.value) + 1
            yield source.place("constant", number, source.replace(number, str(value)))
    yield from _texts(source)


def _texts(source: Source) -> Iterator[Place]:
    by_function: dict[cst.FunctionDef | None, list[cst.SimpleString]] = {}
    for text in source.nodes(cst.SimpleString):
        if _is_value(source, text):
            by_function.setdefault(source.function(text), []).append(text)
    for texts in by_function.values():
        known = list(dict.fromkeys(text.value for text in texts))
        for text in texts:
            if len(known) > 1:
                other = known[(known.index(text.value) + 1) % len(known)]
                yield source.place("constant", text, source.replace(text, other))


def _is_value(source: Source, text: cst.SimpleString) -> bool:
    """Compared, handed over, returned or stored; no message, docstring or part of a text."""
    around = source.parent(text)
    if len(text.value) > SHORT or text.prefix or "\n" in text.value or '"""' in text.value:
        return False
    if isinstance(around, cst.Arg):
        return not isinstance(source.parent(source.parent(around)), cst.Raise)
    kinds = (cst.ComparisonTarget, cst.Return, cst.Assign, cst.Index, cst.Element, cst.IfExp)
    return isinstance(around, kinds)


def slice_end(source: Source) -> Iterator[Place]:
    """One end of a slice is lost, or off by one."""
    for node in source.nodes(cst.Slice):
        for bound in (node.lower, node.upper):
            if bound is None:
                continue
            if isinstance(bound, cst.Integer) and bound.value.isdecimal():
                edit = source.replace(bound, str(int(bound.value) + 1))
                yield source.place("slice", node, edit)
            elif isinstance(bound, cst.Name | cst.Attribute):
                for other in (" + 1", " - 1"):
                    edit = source.replace(bound, f"{source.code(bound)}{other}")
                    yield source.place("slice", node, edit)
            yield source.place("slice", node, source.replace(bound, "", parens=True))
        if node.step is not None:
            yield source.place("slice", node, source.replace(node.step, "", parens=True))
