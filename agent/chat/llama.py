"""Bare JSON with `parameters`, several separated by `;`: Llama 3.1, 3.2, 3.3."""

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
    no_call,
    parse_json,
    refuse_rest,
)

_TAG = "<|python_tag|>"
_START = re.compile(r"^[ \t]*(?=\{\s*[\"']\w+[\"']\s*:)", re.MULTILINE)


def _write(call: ToolCall) -> str:
    return dumps({"name": call.name, "parameters": dict(call.arguments)})


def _read(text: str, tools: Tools) -> Sequence[WrittenCall]:
    at = _first(text)
    calls: list[WrittenCall] = []
    while True:
        value, at = parse_json(text, at)
        calls.append(call_of(value, "parameters"))
        while text[at : at + 1].isspace():
            at += 1
        if not text.startswith(";", at) or not text[at + 1 :].strip():
            refuse_rest(text[at:].removeprefix(";"))
            return calls
        at += 1


def _first(text: str) -> int:
    """Where the first call's JSON begins: behind the tag, or on a line of its own."""
    tag = text.find(_TAG)
    if tag >= 0:
        return tag + len(_TAG)
    begin = _START.search(text)
    if begin is None:
        raise no_call(text, 'a call is a JSON object with "name" and "parameters".')
    before = text[: begin.start()].rstrip().rpartition("\n")[2]
    if before.startswith("```"):
        raise Malformed("Your call stands in a code fence: write it without one.")
    return begin.end()


LLAMA = CallFormat(
    name="llama",
    write=_write,
    read=_read,
    written=re.compile(rf'\{{"name": "{PROBE_TOOL}", "parameters": '),
)
