"""Chat messages to ids and back, by the tokenizer's own template, one piece per turn.

Only the *new* text of a turn is ever encoded; ids that were sampled are carried along as they
are. The text between two turns (end-of-turn marks, role headers) is cut out of a rendering by
the template itself around a sentinel, so that no template is written down twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

_SENTINEL = "patchgym:assistant-turn"


class ChatTokenizer(Protocol):
    """What rendering needs of a tokenizer."""

    @property
    def end_of_turn(self) -> int:
        """The id that ends an assistant turn."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; control tokens written in it are recognized."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, control tokens left out."""
        ...

    def render_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool
    ) -> str:
        """Text of a conversation by the model's own template."""
        ...

    def control_tokens(self) -> Sequence[str]:
        """The control tokens' spellings."""
        ...


def neutralize(tokenizer: ChatTokenizer, text: str) -> str:
    """Break every control token spelled in untrusted `text`, so that it stays mere text."""
    for token in tokenizer.control_tokens():
        if token in text:
            text = text.replace(token, f"{token[:1]} {token[1:]}")
    return text


def render_prompt(tokenizer: ChatTokenizer, content: str, opening: str = "") -> tuple[int, ...]:
    """Ids of a first user message and of `opening`, the words put into the assistant's mouth."""
    message = {"role": "user", "content": neutralize(tokenizer, content)}
    rendered = tokenizer.render_chat([message], add_generation_prompt=True)
    return tuple(tokenizer.encode(rendered + opening))


def render_reply(
    tokenizer: ChatTokenizer, last_token: int, content: str, opening: str = ""
) -> tuple[int, ...]:
    """Ids between a completion that ended on `last_token` and the next one, `opening` included.

    A completion cut by length or by a stop text never sampled its end-of-turn id; the template's
    is put in then, as context, outside the loss.
    """
    conversation = [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": _SENTINEL},
        {"role": "user", "content": neutralize(tokenizer, content)},
    ]
    rendered = tokenizer.render_chat(conversation, add_generation_prompt=True)
    head, found, tail = rendered.partition(_SENTINEL)
    if not found:
        raise ValueError("the chat template drops the assistant's text: multi-turn needs it kept")
    ids = tokenizer.encode(tail + opening)
    if ids and ids[0] == last_token == tokenizer.end_of_turn:
        ids = ids[1:]
    return tuple(ids)
