"""The small correct functions that bundled tasks are made from, in a one-line declarative form."""

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

_STEPS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A correct function and the calls that its tests make."""

    name: str
    """Name of the function, and of its file."""
    source: str
    """The whole definition, exactly as ast.unparse writes it, with a newline at the end."""
    calls: tuple[str, ...]
    """Example calls as Python text, such as `add(2, 3)`."""


class EndlessError(RuntimeError):
    """A call took more steps than any bundled function needs."""


def define(signature: str, body: str, *arguments: str) -> Function:
    """`define("add(a, b)", "return a + b", "2, 3", "0, 4")`: expected values are computed."""
    name = signature.partition("(")[0]
    return Function(
        name=name,
        source=f"def {signature}:\n{textwrap.indent(body, '    ')}\n",
        calls=tuple(f"{name}({argument})" for argument in arguments),
    )


def evaluate(source: str, calls: tuple[str, ...]) -> tuple[object, ...]:
    """What each call returns under that source, each in a fresh module; raises what it raises.

    Steps, not seconds, are bounded (EndlessError): the answer must not depend on the machine.
    """
    values = []
    for call in calls:
        namespace: dict[str, object] = {}
        exec(source, namespace)
        with _bounded():
            values.append(eval(call, namespace))
    return tuple(values)


@contextmanager
def _bounded() -> Iterator[None]:
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > _STEPS:
            raise EndlessError(f"more than {_STEPS} steps")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(before)
