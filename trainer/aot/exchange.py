"""What devices exchange: the collectives of a program, their bytes, and how long a link takes.

TPU's compiler writes a collective in one of three ways: as itself or alone in a fusion, and every
device waits; as a pair of `-start` and `-done`; or inside fusions that carry it along with other
work, where several fusions, one of them the start and one the done, hold the same instruction.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from .hlo import Instruction, Module

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One exchange."""

    kind: str
    """One of `KINDS`."""
    group: int
    """Devices that take part together."""
    bytes: int
    """Sent by each device over its link."""
    key: str
    """The same for all fusions that carry one exchange along; empty for one that all wait for."""


def collective_of(module: Module, one: Instruction) -> Collective | None:
    """The exchange that `one` is or carries along, or None. A `-done` is none: see `awaited`."""
    kind = one.opcode.removesuffix("-start")
    if kind in KINDS:
        return _collective(one, kind, one.name if one.opcode.endswith("-start") else "")
    if one.opcode != "fusion" or "kind=kCustom" not in one.attributes:
        return None
    calls = one.attribute("calls")
    for inner in module.called(calls):
        if inner.opcode in KINDS:
            key = _key(inner) if "async" in one.name + calls else ""
            if calls.startswith("all-reduce-scatter"):  # of the sum, a rank takes its part
                whole = _collective(inner, "all-reduce", key)
                return replace(whole, kind="reduce-scatter", bytes=whole.bytes // 2)
            return _collective(inner, inner.opcode, key)
    return None


def awaited(module: Module, one: Instruction) -> str:
    """The key of the exchange that `one` waits for; empty when it waits for none."""
    if one.opcode.endswith("-done") and one.opcode.removesuffix("-done") in (*KINDS, "copy"):
        return one.operands[0]
    if one.opcode == "fusion" and "done" in one.name:
        found = collective_of(module, one)
        return found.key if found else ""
    return ""


def host_copy(one: Instruction) -> int:
    """Bytes that `one`, a `copy-start`, moves between the chip and its host's memory; else 0."""
    if one.opcode != "copy-start" or "S(5)" not in one.shape:
        return 0
    return one.arrays[0][1]


def _collective(one: Instruction, kind: str, key: str) -> Collective:
    group = _group(one)
    return Collective(kind=kind, group=group, bytes=_sent(one, kind, group), key=key)


def _key(one: Instruction) -> str:
    chain = re.search(r'chain_id="(\d+)"', one.attributes)
    channel = re.search(r"channel_id=(\d+)", one.attributes)
    return f"chain {chain and chain.group(1)} channel {channel and channel.group(1)}"


def _sent(one: Instruction, kind: str, group: int) -> int:
    """Bytes over one link, pieces passed on from neighbour to neighbour in a ring."""
    arrays = [size for _, size in one.arrays]
    result = sum(arrays)
    if one.opcode.endswith("-start") and len(arrays) > 1:
        result = arrays[1]  # (operand, result, ...)
    rest = max(0, group - 1)
    if kind == "collective-permute":
        return result
    if kind == "reduce-scatter":
        return result * rest
    return result * rest * (2 if kind == "all-reduce" else 1) // max(1, group)


def _group(one: Instruction) -> int:
    """Devices of a group, from any of the three notations of `replica_groups`."""
    text = one.attributes
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", text):
        return len(found.group(1).split(","))
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", text):
        return int(found.group(1))
    if found := re.search(r"replica_groups=mesh\[(.*?)\]\s*\{(.*?)\}", text):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found.group(1)))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", found.group(2)))
    return 2
