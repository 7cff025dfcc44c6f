"""What chats need of a tokenizer, and how untrusted text is kept from spelling control tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Protocol


class TemplateRefusal(ValueError):
    """A chat template does not take a conversation; the message is the template's own."""


class ChatTokenizer(Protocol):
    """A model's tokenizer and its chat template; hashable, since what it is found to be is kept."""

    def __hash__(self) -> int: ...

    @property
    def end_of_turn(self) -> int:
        """The id that the template puts after an assistant's words."""
        ...

    @property
    def end_ids(self) -> frozenset[int]:
        """Every id that ends a turn when it is sampled, `end_of_turn` among them."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; control tokens written in it are recognized, none is added."""
        ...

    def decode(self, tokens: Sequence[int], *, control: bool = False) -> str:
        """Text of `tokens`; control tokens are spelled with `control`, left out without.

        Raises ValueError for an id that is outside the vocabulary.
        """
        ...

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool,
    ) -> str:
        """Text of a conversation by the model's own template; TemplateRefusal when it won't."""
        ...

    def control_tokens(self) -> Sequence[str]:
        """The control tokens' spellings."""
        ...


def neutralize(tokenizer: ChatTokenizer, text: str) -> str:
    """Break every control token spelled in untrusted `text`, so that it stays mere text.

    A space goes behind its first character. Half a surrogate pair, which no encoding takes, becomes
    a question mark.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    lengths, starts = _index(tuple(tokenizer.control_tokens()))
    if starts is None:
        return text
    known = set(tokenizer.control_tokens())
    pieces: list[str] = []
    kept = 0
    for found in starts.finditer(text):
        at = found.start()
        if any(text[at : at + length] in known for length in lengths[text[at]]):
            pieces += (text[kept : at + 1], " ")
            kept = at + 1
    return "".join(pieces) + text[kept:]


@lru_cache(maxsize=16)
def _index(
    tokens: tuple[str, ...],
) -> tuple[Mapping[str, Sequence[int]], re.Pattern[str] | None]:
    """Lengths of the tokens by first character, and a pattern of these characters.

    Vocabularies with thousands of control tokens exist: only places where one may begin are tried,
    and only as many lengths as there are.
    """
    lengths: dict[str, set[int]] = {}
    for token in tokens:
        if len(token) > 1:
            lengths.setdefault(token[0], set()).add(len(token))
    if not lengths:
        return {}, None
    starts = re.compile("[" + "".join(re.escape(character) for character in lengths) + "]")
    return {first: sorted(sizes) for first, sizes in lengths.items()}, starts
