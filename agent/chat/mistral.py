"""`[TOOL_CALLS]`: a JSON list in Mistral's older models, `name[ARGS]{...}` in its newer ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from patchgym.agent.action import ToolCall

from .reading import (
    PROBE_TOOL,
    CallFormat,
    Malformed,
    Tools,
    WrittenCall,
    call_of,
    dumps,
    known_id,
    no_call,
    parse_json,
    refuse_rest,
)

_MARK, _ARGS = "[TOOL_CALLS]", "[ARGS]"
_NAME = re.compile(r"\s*([^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*([^\s\[\]{}]*)\s*)?(?=\[ARGS\])")
_EXAMPLE_ID = "a1B2c3D4e"


def _write_list(call: ToolCall) -> str:
    return _MARK + dumps([{"name": call.name, "arguments": dict(call.arguments)}])


def _write_args(call: ToolCall) -> str:
    return f"{_MARK}{call.name}{_ARGS}{dumps(dict(call.arguments))}"


def _write_args_with_id(call: ToolCall) -> str:
    return f"{_MARK}{call.name}[CALL_ID]{_EXAMPLE_ID}{_ARGS}{dumps(dict(call.arguments))}"


def _read(text: str, tools: Tools) -> Sequence[WrittenCall]:
    """Either way of writing: what follows the mark says which it is."""
    at = text.find(_MARK)
    if at < 0:
        raise no_call(text, f"calls begin with {_MARK}.")
    if text[at + len(_MARK) :].lstrip().startswith(("[", "```", "{")):
        return _list(text, at + len(_MARK))
    calls: list[WrittenCall] = []
    while text.startswith(_MARK, at):
        head = _NAME.match(text, at + len(_MARK))
        if head is None:
            raise Malformed(f"Between {_MARK} and the arguments there should be a name and {_ARGS}")
        value, at = parse_json(text, head.end() + len(_ARGS))
        if not isinstance(value, dict):
            raise Malformed(f"Behind {_ARGS} there should be a JSON object.")
        calls.append(WrittenCall(name=head[1], arguments=value, id=known_id(head[2])))
        while text[at : at + 1].isspace():
            at += 1
    refuse_rest(text[at:])
    return calls


def _list(text: str, at: int) -> Sequence[WrittenCall]:
    value, end = parse_json(text, at)
    if not isinstance(value, list):
        raise Malformed(f"Behind {_MARK} there should be a JSON list of calls.")
    if not value:
        raise Malformed("The list of calls is empty.")
    refuse_rest(text[end:])
    return [call_of(entry, "arguments") for entry in value]


MISTRAL = CallFormat(
    name="mistral",
    write=_write_list,
    read=_read,
    written=re.compile(rf'\[TOOL_CALLS\]\s*\[\{{.*"name": "{PROBE_TOOL}"'),
)
MISTRAL_ARGS = CallFormat(
    name="mistral-args",
    write=_write_args,
    read=_read,
    written=re.compile(rf"\[TOOL_CALLS\]{PROBE_TOOL}\[ARGS\]"),
)
MISTRAL_CALL_ID = CallFormat(
    name="mistral-call-id",
    write=_write_args_with_id,
    read=_read,
    written=re.compile(rf"\[TOOL_CALLS\]{PROBE_TOOL}\[CALL_ID\]"),
)
