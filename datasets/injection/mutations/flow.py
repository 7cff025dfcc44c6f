"""Wrong flow: a guard, else, return, await or statement dropped; a return or break misplaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from patchgym.datasets.injection.source import Edit, Place, Source

LEAVING = (cst.Return, cst.Raise, cst.Continue, cst.Break)


def dropped_guard(source: Source) -> Iterator[Place]:
    """An `if` that only leaves the function or loop is lost."""
    for node in source.nodes(cst.If):
        last = _only_lines(node.body)
        alone = node.orelse is None and _can_go(source, node)
        if alone and last and isinstance(last[-1], LEAVING) and len(last) <= 2:
            yield source.place("dropped-guard", node, source.remove(node))


def removed_else(source: Source) -> Iterator[Place]:
    """An `else`, or the rest from an `elif` on, is lost."""
    for node in source.nodes(cst.If):
        rest = node.orelse
        body = getattr(node.body, "body", ())
        if rest is None or not isinstance(node.body, cst.IndentedBlock) or not body:
            continue
        inner = rest.body
        if not isinstance(inner, cst.IndentedBlock):
            continue
        first = source.lines(rest)[0]
        last = source.lines(rest)[1]
        edit = Edit(start=source.line_start(first), end=source.line_start(last + 1), text=b"")
        lines = source.lines(inner.body[0])
        yield source.place("removed-else", rest, edit, covered_by=lines)


def removed_return(source: Source) -> Iterator[Place]:
    """`return f(x)` becomes `f(x)`: the value is lost."""
    for node in source.nodes(cst.Return):
        if isinstance(node.value, cst.Call) and _alone(source, node):
            yield source.place(
                "removed-return", node, source.replace(node, source.code(node.value))
            )


def removed_await(source: Source) -> Iterator[Place]:
    """`await f(x)` becomes `f(x)`."""
    for node in source.nodes(cst.Await):
        edit = source.replace(node, source.code(node.expression))
        yield source.place("removed-await", node, edit)


def dropped_statement(source: Source) -> Iterator[Place]:
    """A call made for its effect, or an assignment to a part of something, is lost."""
    for line in source.nodes(cst.SimpleStatementLine):
        if len(line.body) != 1 or not _can_go(source, line):
            continue
        (small,) = line.body
        effect = isinstance(small, cst.Expr) and isinstance(small.value, cst.Call | cst.Await)
        stored = isinstance(small, cst.Assign) and all(
            isinstance(each.target, cst.Attribute | cst.Subscript) for each in small.targets
        )
        renewed = isinstance(small, cst.AugAssign)
        if effect or stored or renewed:
            yield source.place("dropped-statement", line, source.remove(line))


def early_return(source: Source) -> Iterator[Place]:
    """The `return` behind a loop slips into it."""
    for block in source.nodes(cst.IndentedBlock):
        for loop, after in zip(block.body, block.body[1:], strict=False):
            if not isinstance(loop, cst.For | cst.While) or loop.orelse is not None:
                continue
            if not isinstance(after, cst.SimpleStatementLine) or len(after.body) != 1:
                continue
            first, last = source.lines(after)
            if not isinstance(after.body[0], cst.Return) or first != last:
                continue
            if not isinstance(loop.body, cst.IndentedBlock) or after.leading_lines:
                continue
            deeper = loop.body.indent or source.module.default_indent
            at = source.line_start(first)
            edit = Edit(start=at, end=at, text=deeper.encode())
            lines = source.lines(loop.body.body[0])
            yield source.place("early-return", after, edit, covered_by=lines)


def break_continue(source: Source) -> Iterator[Place]:
    """`break` becomes `continue`, and the other way."""
    for leave in source.nodes(cst.Break):
        yield source.place("break-continue", leave, source.replace(leave, "continue"))
    for again in source.nodes(cst.Continue):
        yield source.place("break-continue", again, source.replace(again, "break"))


def swapped_branches(source: Source) -> Iterator[Place]:
    """`a if x else b` becomes `b if x else a`."""
    for node in source.nodes(cst.IfExp):
        if source.code(node.body) != source.code(node.orelse):
            yield source.place(
                "swapped-branches",
                node,
                source.replace(node.body, source.code(node.orelse), parens=True),
                source.replace(node.orelse, source.code(node.body), parens=True),
            )


def _only_lines(block: cst.BaseSuite) -> Sequence[cst.BaseSmallStatement]:
    """The small statements of a block that has no others."""
    found: list[cst.BaseSmallStatement] = []
    for line in block.body:
        if isinstance(line, cst.BaseSmallStatement):
            found.append(line)
        elif isinstance(line, cst.SimpleStatementLine):
            found.extend(line.body)
        else:
            return ()
    return found


def _can_go(source: Source, node: cst.CSTNode) -> bool:
    """A statement of an indented block that something else is left of."""
    around = source.parent(node)
    if not isinstance(around, cst.IndentedBlock):
        return False
    rest = [each for each in around.body if each is not node]
    return any(not _is_text(each) for each in rest)


def _is_text(statement: cst.BaseStatement) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    return isinstance(first, cst.Expr) and isinstance(first.value, cst.BaseString)


def _alone(source: Source, node: cst.BaseSmallStatement) -> bool:
    around = source.parent(node)
    return isinstance(around, cst.SimpleStatementLine) and len(around.body) == 1
