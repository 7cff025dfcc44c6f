"""Wrong comparisons: turned round, off at the boundary, or by truth instead of by None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from patchgym.datasets.injection.source import Place, Source

TURNED: Mapping[type[cst.BaseCompOp], str] = {
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.LessThan: ">",
    cst.GreaterThan: "<",
    cst.LessThanEqual: ">=",
    cst.GreaterThanEqual: "<=",
    cst.In: "not in",
    cst.NotIn: "in",
    cst.Is: "is not",
    cst.IsNot: "is",
}
BOUNDARY: Mapping[type[cst.BaseCompOp], str] = {
    cst.LessThan: "<=",
    cst.LessThanEqual: "<",
    cst.GreaterThan: ">=",
    cst.GreaterThanEqual: ">",
}


def comparison(source: Source) -> Iterator[Place]:
    """`==` becomes `!=`, `in` becomes `not in`, `<` becomes `>`."""
    yield from _swapped(source, "comparison", TURNED)


def boundary(source: Source) -> Iterator[Place]:
    """`<` becomes `<=`, and the like."""
    yield from _swapped(source, "boundary", BOUNDARY)


def _swapped(
    source: Source, kind: str, others: Mapping[type[cst.BaseCompOp], str]
) -> Iterator[Place]:
    for node in source.nodes(cst.Comparison):
        for target in node.comparisons:
            other = others.get(type(target.operator))
            if other:
                yield source.place(kind, node, source.replace(target.operator, other))


def truthiness(source: Source) -> Iterator[Place]:
    """`x is None` becomes `not x`, `x is not None` becomes `x`: 0 and "" now go the wrong way."""
    for node in source.nodes(cst.Comparison):
        if len(node.comparisons) != 1 or not isinstance(node.left, cst.Name | cst.Attribute):
            continue
        (target,) = node.comparisons
        if not isinstance(target.comparator, cst.Name) or target.comparator.value != "None":
            continue
        left = source.code(node.left)
        if isinstance(target.operator, cst.Is):
            edit = source.replace(node, f"(not {left})" if _tight(source, node) else f"not {left}")
        elif isinstance(target.operator, cst.IsNot):
            edit = source.replace(node, left)
        else:
            continue
        yield source.place("truthiness", node, edit)


def _tight(source: Source, node: cst.Comparison) -> bool:
    """Whether what stands around binds tighter than `not`."""
    return isinstance(source.parent(node), cst.UnaryOperation | cst.ComparisonTarget)
