"""Single mistakes that a programmer makes, put into a correct function by rewriting its AST."""

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .functions import EndlessError, Function, evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A function with one mistake in it, and what its tests say."""

    kind: str
    """Which rule made it; see RULES."""
    source: str
    """The whole definition, as ast.unparse writes it, with a newline at the end."""
    failing: tuple[int, ...]
    """Positions in Function.calls whose result is now wrong; at least one."""


Rule = Callable[[ast.AST], Iterator[ast.AST]]

_ARITHMETIC: Mapping[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Sub),
    ast.Div: (ast.Mult, ast.Sub),
    ast.FloorDiv: (ast.Mod, ast.Mult),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.Pow: (ast.Mult, ast.Add),
}
_COMPARISONS: Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.Gt, ast.LtE),
    ast.LtE: (ast.GtE, ast.Lt),
    ast.Gt: (ast.Lt, ast.GtE),
    ast.GtE: (ast.LtE, ast.Gt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "len"}
_METHODS = {
    "upper": "lower",
    "lower": "upper",
    "startswith": "endswith",
    "endswith": "startswith",
    "strip": "lstrip",
    "isdigit": "isalpha",
}


def mutants(function: Function) -> list[Mutant]:
    """Every usable mutant, in a fixed order: it differs, ends, returns, and fails a test."""
    tree = ast.parse(function.source)
    expected = evaluate(function.source, function.calls)
    found: dict[str, Mutant] = {}
    for node in ast.walk(tree):
        for kind, rule in RULES.items():
            for replacement in rule(node):
                source = _replaced(tree, node, replacement)
                if source == function.source or source in found:
                    continue
                if failing := _failing(source, function.calls, expected):
                    found[source] = Mutant(kind=kind, source=source, failing=failing)
    return list(found.values())


def _replaced(tree: ast.AST, node: ast.AST, replacement: ast.AST) -> str:
    # deepcopy's memo says what a node was copied to already: here, to its replacement.
    return ast.unparse(copy.deepcopy(tree, {id(node): replacement})) + "\n"


def _failing(source: str, calls: tuple[str, ...], expected: tuple[object, ...]) -> tuple[int, ...]:
    """Positions that are wrong; none where a call raises, which is another sort of bug report."""
    try:
        values = evaluate(source, calls)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, EndlessError):
        return ()
    return tuple(i for i, value in enumerate(values) if not value == expected[i])


def _arithmetic(node: ast.AST) -> Iterator[ast.AST]:
    """`a + b` -> `a - b`; also `result *= n` -> `result += n`."""
    if isinstance(node, ast.BinOp):
        for operator in _ARITHMETIC.get(type(node.op), ()):
            yield ast.BinOp(node.left, operator(), node.right)
    elif isinstance(node, ast.AugAssign):
        for operator in _ARITHMETIC.get(type(node.op), ()):
            yield ast.AugAssign(node.target, operator(), node.value)


def _comparison(node: ast.AST) -> Iterator[ast.AST]:
    """`a > b` -> `a < b` or `a >= b`."""
    if isinstance(node, ast.Compare):
        for position, before in enumerate(node.ops):
            for after in _COMPARISONS.get(type(before), ()):
                operators = [*node.ops[:position], after(), *node.ops[position + 1 :]]
                yield ast.Compare(node.left, operators, node.comparators)


def _boolean(node: ast.AST) -> Iterator[ast.AST]:
    """`a and b` -> `a or b`."""
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _constant(node: ast.AST) -> Iterator[ast.AST]:
    """`x * 60` -> `x * 61`; indices and signs have rules of their own."""
    if isinstance(node, ast.BinOp | ast.Compare | ast.IfExp | ast.Call | ast.Return):
        for name, child in ast.iter_fields(node):
            for position, item in enumerate(child if isinstance(child, list) else [child]):
                if isinstance(item, ast.Constant) and type(item.value) is int:
                    for value in (item.value + 1, max(item.value - 1, 0)):
                        yield _with(node, name, position, ast.Constant(value))


def _call(node: ast.AST) -> Iterator[ast.AST]:
    """`max(xs)` -> `min(xs)`, `text.upper()` -> `text.lower()`."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            yield ast.Call(ast.Name(_NAMES[node.func.id]), node.args, node.keywords)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
            method = ast.Attribute(node.func.value, _METHODS[node.func.attr])
            yield ast.Call(method, node.args, node.keywords)


def _off_by_one(node: ast.AST) -> Iterator[ast.AST]:
    """`len(xs)` -> `len(xs) - 1`, and the same after sum."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("len", "sum"):
            yield ast.BinOp(node, ast.Sub(), ast.Constant(1))
            yield ast.BinOp(node, ast.Add(), ast.Constant(1))


def _index(node: ast.AST) -> Iterator[ast.AST]:
    """`xs[0]` -> `xs[1]` or `xs[-1]`."""
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        for value in (0, 1, -1):
            yield ast.Subscript(node.value, _number(value))


def _slice(node: ast.AST) -> Iterator[ast.AST]:
    """`xs[1:]` -> `xs[:1]`, `text[::-1]` -> `text[::1]`, `xs` summed whole -> `xs[1:]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        lower, upper, step = node.slice.lower, node.slice.upper, node.slice.step
        if step is not None:
            turned = step.operand if isinstance(step, ast.UnaryOp) else _number(-1)
            yield ast.Subscript(node.value, ast.Slice(lower, upper, turned))
        elif lower is None or upper is None:
            yield ast.Subscript(node.value, ast.Slice(upper, lower))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("sum", "max", "min", "sorted") and len(node.args) == 1:
            rest = ast.Subscript(node.args[0], ast.Slice(ast.Constant(1)))
            yield ast.Call(node.func, [rest], node.keywords)


def _negation(node: ast.AST) -> Iterator[ast.AST]:
    """`not flag` -> `flag`, `-x` -> `x`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


def _order(node: ast.AST) -> Iterator[ast.AST]:
    """`a - b` -> `b - a`, `f(a, b)` -> `f(b, a)`, `x in y` -> `y in x`, `[a, b]` -> `[b, a]`."""
    if isinstance(node, ast.BinOp):
        yield ast.BinOp(node.right, node.op, node.left)
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        swapped = [*node.args[:-2], node.args[-1], node.args[-2]]
        yield ast.Call(node.func, swapped, node.keywords)
    elif isinstance(node, ast.List) and len(node.elts) == 2:
        yield ast.List(node.elts[::-1])


def _branch(node: ast.AST) -> Iterator[ast.AST]:
    """`a if test else b` -> `b if test else a`."""
    if isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


def _missing(node: ast.AST) -> Iterator[ast.AST]:
    """A part is left out: `a + b + c` -> `a + b`, a filter, a keyword, a call around its value."""
    if isinstance(node, ast.BinOp):
        yield from (side for side in (node.left, node.right) if not isinstance(side, ast.Constant))
    elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
        yield from node.values
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield ast.comprehension(node.target, node.iter, [], node.is_async)
    elif isinstance(node, ast.Call):
        if node.keywords:
            yield ast.Call(node.func, node.args, [])
        elif isinstance(node.func, ast.Attribute) and not node.args:
            yield node.func.value
        elif isinstance(node.func, ast.Name) and len(node.args) == 1:
            yield node.args[0]


def _text(node: ast.AST) -> Iterator[ast.AST]:
    """`'Hello, '` -> `'Hello,'`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield ast.Constant(node.value[:-1])


def _number(value: int) -> ast.expr:
    # As the parser has it: -1 is a minus before a 1.
    number = ast.Constant(abs(value))
    return ast.UnaryOp(ast.USub(), number) if value < 0 else number


def _with(node: ast.AST, name: str, position: int, item: ast.expr) -> ast.AST:
    """A copy of the node with one child exchanged."""
    new = copy.copy(node)
    child = getattr(node, name)
    if isinstance(child, list):
        item_list = [*child[:position], item, *child[position + 1 :]]
        setattr(new, name, item_list)
    else:
        setattr(new, name, item)
    return new


RULES: Mapping[str, Rule] = {
    "arithmetic": _arithmetic,
    "comparison": _comparison,
    "boolean": _boolean,
    "constant": _constant,
    "call": _call,
    "off_by_one": _off_by_one,
    "index": _index,
    "slice": _slice,
    "negation": _negation,
    "order": _order,
    "branch": _branch,
    "missing": _missing,
    "text": _text,
}
"""Kind -> rule. A rule yields what could stand in a node's place; the order is part of the seed."""
