"""Wrong exceptions: another type is raised or caught, or one of several is caught no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import libcst as cst

from patchgym.datasets.injection.source import Place, Source

SIBLING: Mapping[str, str] = {
    "ValueError": "TypeError",
    "TypeError": "ValueError",
    "KeyError": "IndexError",
    "IndexError": "KeyError",
    "AttributeError": "KeyError",
    "LookupError": "ValueError",
    "NotImplementedError": "ValueError",
    "RuntimeError": "ValueError",
    "OverflowError": "ValueError",
    "ZeroDivisionError": "ValueError",
    "UnicodeDecodeError": "UnicodeEncodeError",
    "UnicodeEncodeError": "UnicodeDecodeError",
    "OSError": "ValueError",
    "AssertionError": "ValueError",
}


def exception_type(source: Source) -> Iterator[Place]:
    """`except KeyError` becomes `except IndexError`; so for `raise`."""
    for handler in source.nodes(cst.ExceptHandler):
        if isinstance(handler.type, cst.Name):
            yield from _renamed(source, handler.type, handler)
        elif isinstance(handler.type, cst.Tuple):
            yield from _fewer(source, handler.type, handler)
    for node in source.nodes(cst.Raise):
        raised = node.exc.func if isinstance(node.exc, cst.Call) else node.exc
        if isinstance(raised, cst.Name):
            yield from _renamed(source, raised, None)


def _renamed(source: Source, name: cst.Name, handler: cst.ExceptHandler | None) -> Iterator[Place]:
    if name.value in SIBLING:
        edit = source.replace(name, SIBLING[name.value])
        yield source.place("exception-type", name, edit, covered_by=_lines(source, handler))


def _fewer(source: Source, types: cst.Tuple, handler: cst.ExceptHandler) -> Iterator[Place]:
    for kept in types.elements:
        if len(types.elements) == 2:
            edit = source.replace(types, source.code(kept.value), parens=True)
            lines = _lines(source, handler)
            yield source.place("exception-type", types, edit, covered_by=lines)


def _lines(source: Source, handler: cst.ExceptHandler | None) -> tuple[int, int] | None:
    """A handler matters to the tests that it has caught something for."""
    return source.lines(handler.body) if handler is not None else None
