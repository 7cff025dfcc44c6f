"""Wrong names: another variable of the same type in scope, another attribute, swapped arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from patchgym.datasets.injection.source import Node, Place, Source

AT_MOST = 3  # other names that are tried for one use
COMMON = frozenset(("None", "True", "False", "self", "cls", "_"))

Hints = dict[str, set[str]]


def variable(source: Source) -> Iterator[Place]:
    """A variable is taken for another one that is in scope and, by all signs, of its type."""
    everywhere = by_function(source, cst.Name)
    assigned = by_function(source, cst.Assign)
    for function in source.nodes(cst.FunctionDef):
        names = [each for each in everywhere.get(function, []) if each.value not in COMMON]
        own = [name for name in names if _is_read(source, name)]
        known = _bound(source, function, names)
        hints = _hints(source, function, own, assigned.get(function, []))
        for name in own:
            others = [
                other
                for other, blocks in known.items()
                if other != name.value
                and name.value in known
                and hints.get(other, set()) & hints.get(name.value, set())
                and _reaches(source, blocks, name)
            ]
            for other in others[:AT_MOST]:
                yield source.place("variable", name, source.replace(name, other))


def by_function(source: Source, kind: type[Node]) -> Mapping[cst.FunctionDef | None, list[Node]]:
    """The nodes of a class, by the function whose code they are."""
    found: dict[cst.FunctionDef | None, list[Node]] = {}
    for node in source.nodes(kind):
        found.setdefault(source.function(node), []).append(node)
    return found


def _is_read(source: Source, name: cst.Name) -> bool:
    around = source.parent(name)
    if isinstance(around, cst.Attribute):
        return around.value is name
    if isinstance(around, cst.Call):
        return False
    if isinstance(around, cst.Arg):
        return around.value is name
    if isinstance(around, cst.For | cst.CompFor):
        return around.iter is name
    written = (
        *(cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Param, cst.FunctionDef, cst.ClassDef),
        *(cst.NameItem, cst.Del, cst.AsName, cst.ImportAlias, cst.NamedExpr, cst.ExceptHandler),
    )
    if isinstance(around, cst.Element | cst.Tuple | cst.List):
        for each in source.around(name):
            if isinstance(each, cst.AssignTarget | cst.For | cst.CompFor | cst.Del):
                return False
            if isinstance(each, cst.BaseSmallStatement | cst.BaseCompoundStatement):
                break
    return not isinstance(around, written)


def _bound(
    source: Source, function: cst.FunctionDef, names: list[cst.Name]
) -> dict[str, list[cst.CSTNode]]:
    """Parameters and variables of a function, and the statements and blocks that bind them."""
    found: dict[str, list[cst.CSTNode]] = {}
    parameters = function.params
    for each in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
        if each.name.value not in COMMON:
            found.setdefault(each.name.value, []).append(function)
    for name in names:
        around = source.parent(name)
        if isinstance(around, cst.AssignTarget):
            found.setdefault(name.value, []).append(_line_of(source, name))
        elif isinstance(around, cst.For) and around.target is name:
            found.setdefault(name.value, []).append(around.body)
    return found


def _line_of(source: Source, node: cst.CSTNode) -> cst.CSTNode:
    kind = cst.SimpleStatementLine
    return next((each for each in source.around(node) if isinstance(each, kind)), node)


def _reaches(source: Source, binders: list[cst.CSTNode], use: cst.Name) -> bool:
    """Whether one of the bindings has surely happened where the name is used."""
    around = set(map(id, source.around(use)))
    line = source.lines(use)[0]
    for binder in binders:
        if isinstance(binder, cst.FunctionDef | cst.BaseSuite):
            if id(binder) in around:
                return True
        elif id(source.parent(binder)) in around and source.lines(binder)[1] < line:
            return True
    return False


def _hints(
    source: Source,
    function: cst.FunctionDef,
    uses: list[cst.Name],
    assigned: list[cst.Assign],
) -> Hints:
    """What the code shows of each name's type: annotation, default, literal, and how it is used."""
    found: Hints = {}
    parameters = function.params
    for each in (*parameters.posonly_params, *parameters.params, *parameters.kwonly_params):
        if each.annotation is not None:
            found.setdefault(each.name.value, set()).add(source.code(each.annotation.annotation))
        if each.default is not None and (kind := _literal(each.default)):
            found.setdefault(each.name.value, set()).add(kind)
    for name in uses:
        if use := _use(source, name):
            found.setdefault(name.value, set()).add(use)
    for assign in assigned:
        if kind := _literal(assign.value):
            for target in assign.targets:
                if isinstance(target.target, cst.Name):
                    found.setdefault(target.target.value, set()).add(kind)
    return found


def _literal(value: cst.BaseExpression) -> str:
    if isinstance(value, cst.Name) and value.value in ("True", "False"):
        return "truth"
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Name):
        return {"len": "number", "int": "number", "iter": "iter"}.get(
            value.func.value, f"from {value.func.value}"
        )
    kinds: dict[type[cst.BaseExpression], str] = {
        cst.Integer: "number",
        cst.SimpleString: "text",
        cst.FormattedString: "text",
        cst.List: "list",
        cst.ListComp: "list",
        cst.Dict: "dict",
        cst.DictComp: "dict",
    }
    return kinds.get(type(value), "")


def _use(source: Source, name: cst.Name) -> str:
    """One sign of a type: how a name is used at that place."""
    around = source.parent(name)
    if isinstance(around, cst.Attribute):
        return f".{around.attr.value}"
    if isinstance(around, cst.Subscript):
        return "[]" if around.value is name else ""
    if isinstance(around, cst.Index):
        return "index"
    if isinstance(around, cst.For | cst.CompFor):
        return "iter"
    if isinstance(around, cst.BinaryOperation | cst.Slice):
        return "number"
    if isinstance(around, cst.Arg):
        call = source.parent(around)
        if isinstance(call, cst.Call) and isinstance(call.func, cst.Name):
            return f"{call.func.value}()"
    if isinstance(around, cst.UnaryOperation | cst.BooleanOperation | cst.If):
        return "truth"
    return ""


def attribute(source: Source) -> Iterator[Place]:
    """`self.a` is taken for `self.b`, another attribute that the same method uses alike."""
    for nodes_of_one in by_function(source, cst.Attribute).values():
        used: dict[str, list[cst.Attribute]] = {}
        for node in nodes_of_one:
            if isinstance(node.value, cst.Name) and node.value.value == "self":
                called = isinstance(source.parent(node), cst.Call)
                used.setdefault(f"{called}", []).append(node)
        for nodes in used.values():
            names = sorted({node.attr.value for node in nodes})
            for node in nodes:
                if len(names) > 1 and not isinstance(source.parent(node), cst.AssignTarget):
                    other = names[(names.index(node.attr.value) + 1) % len(names)]
                    yield source.place("attribute", node, source.replace(node.attr, other))


def swapped_arguments(source: Source) -> Iterator[Place]:
    """Two neighbouring arguments change places."""
    for call in source.nodes(cst.Call):
        plain = [arg for arg in call.args if arg.keyword is None and not arg.star]
        for first, second in zip(plain, plain[1:], strict=False):
            left, right = first.value, second.value
            if type(left) is not type(right) and not _plain(left, right):
                continue
            if source.code(left) != source.code(right):
                yield source.place(
                    "swapped-arguments",
                    call,
                    source.replace(left, source.code(right), parens=True),
                    source.replace(right, source.code(left), parens=True),
                )


def _plain(*values: cst.BaseExpression) -> bool:
    return all(isinstance(each, cst.Name | cst.Attribute | cst.Subscript) for each in values)
