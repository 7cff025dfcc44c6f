"""`<function=...>` and `<parameter=...>`: Qwen3-Coder, whose arguments stand as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from patchgym.agent.action import ToolCall, ToolSpec

from .hermes import CLOSE, OPEN
from .reading import (
    PROBE_TOOL,
    CallFormat,
    Malformed,
    Tools,
    WrittenCall,
    dumps,
    no_call,
    quoted,
    refuse_rest,
)

_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>\s*")
_PARAMETER = re.compile(
    r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|</function>)", re.DOTALL
)
_END = re.compile(r"\s*</function>\s*</tool_call>\s*")


def _write(call: ToolCall) -> str:
    lines = [OPEN, f"<function={call.name}>"]
    for name, value in call.arguments.items():
        shown = value if isinstance(value, str) else dumps(value)
        lines += [f"<parameter={name}>", shown, "</parameter>"]
    return "\n".join([*lines, "</function>", CLOSE])


def _read(text: str, tools: Tools) -> Sequence[WrittenCall]:
    at = text.find(OPEN)
    if at < 0:
        raise no_call(text, f"a call stands between {OPEN} and {CLOSE}.")
    calls: list[WrittenCall] = []
    while text.startswith(OPEN, at):
        call, at = _call(text, at + len(OPEN), tools)
        calls.append(call)
    refuse_rest(text[at:])
    return calls


def _call(text: str, at: int, tools: Tools) -> tuple[WrittenCall, int]:
    head = _FUNCTION.match(text, at)
    if head is None:
        raise Malformed(f"Behind {OPEN} there should be <function=NAME>.")
    name, at = head[1].strip(), head.end()
    given: dict[str, object] = {}
    while (found := _PARAMETER.match(text, at)) is not None:
        key = found[1].strip()
        if key in given:
            raise Malformed(f"The argument `{quoted(key)}` is given twice.")
        given[key] = _value(found[2], tools.get(name), key)
        at = found.end()
    end = _END.match(text, at)
    if end is None:
        raise Malformed(f"The call is not closed by </parameter>, </function> and {CLOSE}.")
    return WrittenCall(name=name, arguments=given), end.end()


def _value(text: str, spec: ToolSpec | None, key: str) -> object:
    """The text itself where the tool wants text, else the JSON that it spells, if it does."""
    properties = spec.parameters.get("properties") if spec else None
    described = properties.get(key) if isinstance(properties, Mapping) else None
    wanted = described.get("type") if isinstance(described, Mapping) else None
    if wanted in (None, "string"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


QWEN_CODER = CallFormat(
    name="qwen-coder",
    write=_write,
    read=_read,
    written=re.compile(rf"<function={PROBE_TOOL}>"),
)
