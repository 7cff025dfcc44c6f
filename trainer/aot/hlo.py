"""Reads a compiler's scheduled HLO text: computations, their instructions, what these call.

A line of it is `%name = shape opcode(operands), attributes`. Instructions stand in the order in
which a device runs them. Only what an estimate needs is read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u64": 8, "c64": 8}
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-<>]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"\b([a-z]+\d*\w*)\[([\d,]*)\]")
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One line."""

    name: str
    shape: str
    """Text: `f32[2,3]{1,0}`, or a tuple of such in parentheses."""
    opcode: str
    operands: tuple[str, ...]
    """Names, in order; a constant has its value in `argument`."""
    argument: str
    """What stands between the parentheses."""
    attributes: str
    """What follows them."""
    root: bool
    """Its value is the computation's."""

    @property
    def arrays(self) -> list[tuple[str, int]]:
        """Text and bytes of each array of the shape."""
        return [(found.group(0), _bytes(found)) for found in _ARRAY.finditer(self.shape)]

    @property
    def bytes(self) -> int:
        """Bytes of all its arrays; padding to tiles is not counted."""
        return sum(size for _, size in self.arrays)

    @property
    def cycles(self) -> int:
        """The compiler's own estimate; 0 where it makes none."""
        found = re.search(r'"estimated_cycles":"(\d+)"', self.attributes)
        cycles = int(found.group(1)) if found else 0
        return cycles if cycles < 2**40 else 0  # what it can't estimate is a huge number

    @property
    def origin(self) -> str:
        """Where in the traced program it comes from; empty when the compiler made it up."""
        found = re.search(r'op_name="([^"]*)"', self.attributes)
        return found.group(1) if found else ""

    def attribute(self, key: str) -> str:
        """The name that `key=%name` or `key=name` gives; empty without it."""
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.attributes)
        return found.group(1) if found else ""

    def names(self, key: str) -> list[str]:
        """The names in `key={%a, %b}`."""
        found = re.search(rf"\b{key}=\{{([^}}]*)\}}", self.attributes)
        return re.findall(r"%([\w.\-]+)", found.group(1)) if found else []


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled program."""

    computations: dict[str, tuple[Instruction, ...]]
    """By name, instructions in their order."""
    entry: str
    """The computation that runs."""

    def called(self, name: str) -> tuple[Instruction, ...]:
        """The instructions of `name`; none where the text hasn't got it."""
        return self.computations.get(name, ())


def parse_module(text: str) -> Module:
    """The module that `text` (`compiled.as_text()`) holds.

    Raises ValueError for a text without an entry computation.
    """
    computations: dict[str, list[Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            current = header.group(2)
            computations[current] = []
            entry = current if header.group(1) else entry
        elif current and (found := _INSTRUCTION.match(line)):
            root, name, rest = found.groups()
            computations[current].append(_instruction(name, rest, bool(root)))
    if not entry:
        raise ValueError("this is no HLO text: it has no ENTRY computation")
    return Module({name: tuple(lines) for name, lines in computations.items()}, entry)


def _instruction(name: str, rest: str, root: bool) -> Instruction:
    rest = _COMMENT.sub("", rest)
    shape, rest = _split_shape(rest)
    opcode, _, rest = rest.partition("(")
    end = _closing(rest)
    argument = rest[:end]
    return Instruction(
        name=name,
        shape=shape,
        opcode=opcode.strip(),
        operands=tuple(re.findall(r"%([\w.\-]+)", argument)),
        argument=argument,
        attributes=rest[end + 1 :],
        root=root,
    )


def _split_shape(text: str) -> tuple[str, str]:
    """A shape and what follows it; a tuple's has spaces and parentheses of its own."""
    if text.startswith("("):
        end = _closing(text[1:]) + 2
        return text[:end], text[end:]
    shape, _, rest = text.partition(" ")
    return shape, rest


def _closing(text: str) -> int:
    """Where the parenthesis closes that is open at the beginning of `text`."""
    depth = 1
    for found in re.finditer(r"[()]", text):
        depth += 1 if found.group(0) == "(" else -1
        if depth == 0:
            return found.start()
    return len(text)


def _bytes(array: re.Match[str]) -> int:
    kind, sizes = array.groups()
    if kind in _BYTES:
        width = _BYTES[kind]
    else:
        width = 1 if re.match(r"(s|u|f)(8|4|2)", kind) else 4
    return width * math.prod(int(size) for size in sizes.split(",") if size)
