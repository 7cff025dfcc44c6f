"""`<tool_call>` and JSON: Qwen 2.5 and 3, Hermes, SmolLM; and what we ask models for that have no
format of their own."""

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

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def _write(call: ToolCall) -> str:
    value = {"name": call.name, "arguments": dict(call.arguments)}
    return f"{OPEN}\n{dumps(value)}\n{CLOSE}"


def _read(text: str, tools: Tools) -> Sequence[WrittenCall]:
    """Blocks one after another; a block may hold a list of calls, as SmolLM was taught."""
    at = text.find(OPEN)
    if at < 0:
        raise no_call(text, f"a call stands between {OPEN} and {CLOSE}.")
    calls: list[WrittenCall] = []
    while text.startswith(OPEN, at):
        value, end = parse_json(text, at + len(OPEN))
        at = _behind(text, end, CLOSE)
        values = value if isinstance(value, list) else [value]
        calls += [call_of(entry, "arguments") for entry in values]
        while text[at : at + 1].isspace():
            at += 1
    refuse_rest(text[at:])
    if not calls:
        raise Malformed("The list of calls is empty.")
    return calls


def _behind(text: str, at: int, closing: str) -> int:
    """The place behind `closing`, which must come next."""
    while text[at : at + 1].isspace():
        at += 1
    if not text.startswith(closing, at):
        if at >= len(text):
            raise Malformed(f"The call is not closed by {closing}.")
        raise Malformed(f"Between the JSON and {closing} there is other text.")
    return at + len(closing)


HERMES = CallFormat(
    name="hermes",
    write=_write,
    read=_read,
    written=re.compile(rf'<tool_call>\s*\{{"name": "{PROBE_TOOL}", "arguments": '),
)
