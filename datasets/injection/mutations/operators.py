"""Wrong operators: arithmetic, in place, boolean; a lost minus, condition or negation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from patchgym.datasets.injection.source import Place, Source

BINARY: Mapping[type[cst.BaseBinaryOp], str] = {
    cst.Add: "-",
    cst.Subtract: "+",
    cst.Multiply: "+",
    cst.Divide: "//",
    cst.FloorDivide: "/",
    cst.Modulo: "//",
    cst.Power: "*",
    cst.LeftShift: ">>",
    cst.RightShift: "<<",
    cst.BitAnd: "|",
    cst.BitOr: "&",
    cst.BitXor: "|",
}
AUGMENTED: Mapping[type[cst.BaseAugOp], tuple[str, ...]] = {
    cst.AddAssign: ("=", "-="),
    cst.SubtractAssign: ("=", "+="),
    cst.MultiplyAssign: ("+=",),
    cst.DivideAssign: ("//=",),
    cst.BitOrAssign: ("=", "&="),
    cst.BitAndAssign: ("|=",),
}
TEXT = (
    cst.SimpleString,
    cst.ConcatenatedString,
    cst.FormattedString,
    cst.List,
    cst.Tuple,
    cst.ListComp,
)


def operator(source: Source) -> Iterator[Place]:
    """`a + b` becomes `a - b`; not where one side shows that it is no number."""
    for node in source.nodes(cst.BinaryOperation):
        other = BINARY.get(type(node.operator))
        if other and not isinstance(node.left, TEXT) and not isinstance(node.right, TEXT):
            yield source.place("operator", node, source.replace(node.operator, other))


def augmented(source: Source) -> Iterator[Place]:
    """`x += y` becomes `x = y`, or `x -= y`."""
    for node in source.nodes(cst.AugAssign):
        for other in AUGMENTED.get(type(node.operator), ()):
            if other == "-=" and isinstance(node.value, TEXT):
                continue
            yield source.place("augmented", node, source.replace(node.operator, other))


def boolean(source: Source) -> Iterator[Place]:
    """`and` becomes `or`, and the other way."""
    for node in source.nodes(cst.BooleanOperation):
        other = "or" if isinstance(node.operator, cst.And) else "and"
        yield source.place("boolean", node, source.replace(node.operator, other))


def dropped_condition(source: Source) -> Iterator[Place]:
    """One side of `a and b` is lost."""
    for node in source.nodes(cst.BooleanOperation):
        for side in (node.left, node.right):
            edit = source.replace(node, source.code(side))
            yield source.place("dropped-condition", node, edit)


def negated_condition(source: Source) -> Iterator[Place]:
    """`if x` becomes `if not x`, and the other way."""
    tests = [
        *(node.test for node in source.nodes(cst.If)),
        *(node.test for node in source.nodes(cst.While)),
        *(node.test for node in source.nodes(cst.IfExp)),
    ]
    for test in tests:
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            edit = source.replace(test, source.code(test.expression))
        elif isinstance(test, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
            edit = source.replace(test, f"not {source.code(test)}")
        else:
            continue
        yield source.place("negated-condition", test, edit)


def dropped_minus(source: Source) -> Iterator[Place]:
    """`-x` becomes `x`."""
    for node in source.nodes(cst.UnaryOperation):
        if isinstance(node.operator, cst.Minus):
            edit = source.replace(node, source.code(node.expression))
            yield source.place("dropped-minus", node, edit)
