"""Chat messages to ids, by the tokenizer's own template, one piece per turn.

Only the *new* text of a turn is ever encoded; ids that were sampled are carried along as they
are. The text between two turns (end-of-turn marks, role headers) is cut out of a rendering of a
small conversation by the template itself, behind a sentinel in the assistant's place, so that no
template is written down twice.

Tools are given to the template in the prompt only. Some templates put their list in front of the
*last* user message, wherever that is; here it stays where the prompt put it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from patchgym.agent.action import ToolSpec

from .tokenizer import ChatTokenizer, TemplateRefusal, neutralize

_SENTINEL = "patchgym:assistant-turn"

Message = Mapping[str, object]
"""`role`, `content`, and what a tool's result has besides; its text is taken as trusted."""


def encode_prompt(
    tokenizer: ChatTokenizer,
    messages: Sequence[Message],
    *,
    tools: Sequence[ToolSpec] = (),
    opening: str = "",
) -> tuple[int, ...]:
    """Ids of the first messages and of `opening`, the words put into the assistant's mouth."""
    shown = [tool.as_function() for tool in tools] or None
    rendered = tokenizer.render_chat(messages, tools=shown, add_generation_prompt=True)
    return tuple(tokenizer.encode(rendered + opening))


def encode_reply(
    tokenizer: ChatTokenizer,
    last_token: int,
    messages: Sequence[Message],
    *,
    opening: str = "",
) -> tuple[int, ...]:
    """Ids between a completion that ended on `last_token` and the next one, `opening` included.

    A completion cut by length or by a stop text never sampled its end-of-turn id; the template's
    is put in then, as context, outside the loss.
    """
    before = [{"role": "user", "content": "."}, {"role": "assistant", "content": _SENTINEL}]
    rendered = _rendered(tokenizer, [*before, *messages])
    _, found, tail = rendered.partition(_SENTINEL)
    if not found:
        raise ValueError("the chat template drops the assistant's text: multi-turn needs it kept")
    ids = tokenizer.encode(tail + opening)
    if last_token not in tokenizer.end_ids:
        return tuple(ids)
    return tuple(ids[_end_of_turn(tokenizer, ids) :])


def _rendered(tokenizer: ChatTokenizer, messages: Sequence[Message]) -> str:
    """The conversation without tools; with an empty list of them where the template needs one."""
    try:
        return tokenizer.render_chat(messages, add_generation_prompt=True)
    except TemplateRefusal:
        return tokenizer.render_chat(messages, tools=(), add_generation_prompt=True)


def _end_of_turn(tokenizer: ChatTokenizer, ids: Sequence[int]) -> int:
    """How many ids at the start only end the assistant's turn."""
    for place, token in enumerate(ids[:4]):
        if token in tokenizer.end_ids:
            return place + 1
        if tokenizer.decode([token], control=True).strip():
            break
    return 0


def render_prompt(tokenizer: ChatTokenizer, content: str, opening: str = "") -> tuple[int, ...]:
    """Ids of a first user message of untrusted text and of `opening`."""
    message = {"role": "user", "content": neutralize(tokenizer, content)}
    return encode_prompt(tokenizer, [message], opening=opening)


def render_reply(
    tokenizer: ChatTokenizer, last_token: int, content: str, opening: str = ""
) -> tuple[int, ...]:
    """`encode_reply` of one user message of untrusted text."""
    message = {"role": "user", "content": neutralize(tokenizer, content)}
    return encode_reply(tokenizer, last_token, [message], opening=opening)
