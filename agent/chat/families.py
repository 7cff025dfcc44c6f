"""Which format a model calls tools in, found by asking its template, never by the model's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from patchgym.agent.action import ToolSpec

from .hermes import HERMES
from .llama import LLAMA
from .mistral import MISTRAL, MISTRAL_ARGS, MISTRAL_CALL_ID
from .qwen_coder import QWEN_CODER
from .reading import PROBE_TOOL, CallFormat
from .tokenizer import ChatTokenizer, TemplateRefusal
from .turns import Message

FamilyName = Literal[
    "auto",
    "hermes",
    "qwen-coder",
    "llama",
    "mistral",
    "mistral-args",
    "mistral-call-id",
    "described",
]
"""A call format by name; `described` is ours, for models that have none; `auto` asks the template.
"""

FORMATS: Mapping[str, CallFormat] = {
    known.name: known
    for known in (HERMES, QWEN_CODER, LLAMA, MISTRAL, MISTRAL_ARGS, MISTRAL_CALL_ID)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a model is told of tools, calls them and reads their answers."""

    name: str
    """That of its format, or `described`."""
    format: CallFormat
    """How calls are written and read."""
    shows_tools: bool
    """The template lists the tools; otherwise we describe them in the prompt."""
    tool_role: bool
    """Observations go as `tool` messages; otherwise as user messages."""
    system: bool
    """The template takes a system message; otherwise its text leads the first user message."""


@lru_cache(maxsize=32)
def find_family(tokenizer: ChatTokenizer, name: FamilyName = "auto") -> Family:
    """The family of the tokenizer's template.

    With a `name` calls are written in that format whatever the template says; where the template's
    own is another one, the tools are described in the prompt and observations are user messages.
    """
    own = _own_format(tokenizer)
    wanted = own if name == "auto" else FORMATS.get(name)
    shows = own is not None and own is wanted
    return Family(
        name="described" if wanted is None else wanted.name,
        format=wanted or HERMES,
        shows_tools=shows,
        tool_role=shows and _takes_results(tokenizer),
        system=_takes_system(tokenizer),
    )


_TOOL = ToolSpec(
    name=PROBE_TOOL,
    description="A probe.",
    parameters={
        "type": "object",
        "properties": {"probe_argument": {"type": "string", "description": "A probe."}},
        "required": ["probe_argument"],
    },
)
_USER: Message = {"role": "user", "content": "patchgym:user"}
_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "a1B2c3D4e",
            "type": "function",
            "function": {"name": PROBE_TOOL, "arguments": {"probe_argument": "patchgym:value"}},
        }
    ],
}


def _own_format(tokenizer: ChatTokenizer) -> CallFormat | None:
    """The known format that the template itself lists tools and writes calls in, if any."""
    without = _rendered(tokenizer, [_USER])
    shown = _rendered(tokenizer, [_USER], tools=True)
    if shown is None or shown == without or PROBE_TOOL not in shown:
        return None
    text = _rendered(tokenizer, [_USER, _CALL], tools=True)
    if text is None:
        return None
    # What the template writes about calls in general is in `shown`; the call itself is behind it.
    return next((known for known in FORMATS.values() if known.written.search(text)), None)


def _takes_results(tokenizer: ChatTokenizer) -> bool:
    """Whether results can follow an assistant's words, two of them in one go."""
    words: Message = {"role": "assistant", "content": "patchgym:words"}
    results = [
        {"role": "tool", "name": PROBE_TOOL, "tool_call_id": f"a1B2c3D4{n}", "content": f"pg:{n}"}
        for n in (1, 2)
    ]
    text = _rendered_somehow(tokenizer, [_USER, words, *results])
    return text is not None and all(part in text for part in ("patchgym:words", "pg:1", "pg:2"))


def _takes_system(tokenizer: ChatTokenizer) -> bool:
    system: Message = {"role": "system", "content": "patchgym:system"}
    text = _rendered_somehow(tokenizer, [system, _USER])
    return text is not None and "patchgym:system" in text and "patchgym:user" in text


def _rendered_somehow(tokenizer: ChatTokenizer, messages: Sequence[Message]) -> str | None:
    """Without tools, or with: a template that is for tools alone refuses a chat without."""
    text = _rendered(tokenizer, messages)
    return _rendered(tokenizer, messages, tools=True) if text is None else text


def _rendered(
    tokenizer: ChatTokenizer, messages: Sequence[Message], *, tools: bool = False
) -> str | None:
    """The conversation's text, or None where the template refuses it."""
    shown = [_TOOL.as_function()] if tools else None
    try:
        return tokenizer.render_chat(messages, tools=shown, add_generation_prompt=True)
    except TemplateRefusal:
        return None
