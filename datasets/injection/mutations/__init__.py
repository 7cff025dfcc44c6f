"""Mutations: each finds the places of a file that its kind of bug fits, in the file's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from patchgym.datasets.injection.source import Place, Source

from . import comparisons, constants, defaults, exceptions, flow, names, operators

Mutation = Callable[[Source], Iterator[Place]]

MUTATIONS: Mapping[str, Mutation] = {
    "operator": operators.operator,
    "augmented": operators.augmented,
    "boolean": operators.boolean,
    "dropped-condition": operators.dropped_condition,
    "negated-condition": operators.negated_condition,
    "dropped-minus": operators.dropped_minus,
    "comparison": comparisons.comparison,
    "boundary": comparisons.boundary,
    "truthiness": comparisons.truthiness,
    "off-by-one": constants.off_by_one,
    "constant": constants.constant,
    "slice": constants.slice_end,
    "variable": names.variable,
    "attribute": names.attribute,
    "swapped-arguments": names.swapped_arguments,
    "dropped-guard": flow.dropped_guard,
    "removed-else": flow.removed_else,
    "removed-return": flow.removed_return,
    "removed-await": flow.removed_await,
    "dropped-statement": flow.dropped_statement,
    "early-return": flow.early_return,
    "break-continue": flow.break_continue,
    "swapped-branches": flow.swapped_branches,
    "exception-type": exceptions.exception_type,
    "default-value": defaults.default_value,
    "mutable-default": defaults.mutable_default,
}
"""By the kind of bug that they make."""


def places(source: Source, kinds: Sequence[str] = tuple(MUTATIONS)) -> Iterator[Place]:
    """Every way to put one bug of these kinds into a file."""
    for kind in kinds:
        yield from MUTATIONS[kind](source)
