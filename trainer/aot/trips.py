"""How often a loop runs, where the program's text tells.

XLA's loops of JAX and of the compiler itself count: their condition compares a number of the loop's
state with a limit. Start, limit and step are looked up; a limit that is computed while the program
runs can't be.
"""

from __future__ import annotations

from .hlo import Instruction, Module


def trip_count(module: Module, loop: Instruction, around: tuple[Instruction, ...]) -> int | None:
    """How often `loop`, an instruction of the computation `around`, runs; None: not known.

    The step is taken for 1 where the loop's body does not show it as an addition.
    """
    condition = module.called(loop.attribute("condition"))
    compare = next((one for one in condition if one.root and one.opcode == "compare"), None)
    if compare is None or "direction=LT" not in compare.attributes:
        return None
    inside = {one.name: one for one in condition}
    outside = {one.name: one for one in around}
    state = outside.get(loop.operands[0]) if loop.operands else None
    index, limit = (inside.get(name) for name in compare.operands)
    place = _place(index)
    if place is None:
        return None
    start = _initial(state, place, outside)
    end = _number(limit)
    if end is None and (where := _place(limit)) is not None:
        end = _initial(state, where, outside)
    if end is None:
        return None
    step = _step(module.called(loop.attribute("body")), place)
    return max(0, -(-(end - (start or 0)) // step))


def _place(one: Instruction | None) -> int | None:
    """Which entry of the state `one` reads."""
    if one is None or one.opcode != "get-tuple-element":
        return None
    index = one.attributes.partition("index=")[2].partition(",")[0].split()
    return int(index[0]) if index else None


def _number(one: Instruction | None) -> int | None:
    if one is None or one.opcode != "constant" or not one.argument.lstrip("-").isdigit():
        return None
    return int(one.argument)


def _initial(state: Instruction | None, place: int, outside: dict[str, Instruction]) -> int | None:
    """The constant with which the state's entry begins."""
    if state is None or state.opcode != "tuple" or place >= len(state.operands):
        return None
    source = outside.get(state.operands[place])
    while source is not None and source.opcode in ("copy", "bitcast") and source.operands:
        source = outside.get(source.operands[0])
    return _number(source)


def _step(body: tuple[Instruction, ...], place: int) -> int:
    inside = {one.name: one for one in body}
    root = next((one for one in body if one.root), None)
    if root is None or root.opcode != "tuple" or place >= len(root.operands):
        return 1
    added = inside.get(root.operands[place])
    if added is None or added.opcode != "add":
        return 1
    numbers = [_number(inside.get(name)) for name in added.operands]
    return next((number for number in numbers if number and number > 0), 1)
