"""Reads chats back out of a template's text: messages, and the words put in the assistant's mouth.

A trajectory holds the ids that the model saw, and no messages. What a template writes around
messages is found by rendering small conversations of known words with it; the texts between those
words are then looked for. Untrusted text can't spell them, since agents break every control token
in it. What a template has put into a message (its list of tools, say) stays a part of that
message, so that rendering the messages again, without tools, gives the same text. Where a template
writes tools or results in a way of its own, what it wrote is kept as one rendered text instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from patchgym.agent.chat import ChatTokenizer, TemplateRefusal
from patchgym.trainer.policies import fingerprint

from .errors import FormatError

_SYSTEM, _USER, _WORDS, _NEXT = "pg:system", "pg:user", "pg:assistant", "pg:next"
_RESULT, _RESULT2 = "pg:result\n.", "pg:result2\n."
_NAME, _CALL = "pg_probe_tool", "pg0probe9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A text between two contents."""

    text: str
    role: str
    """Whose content follows."""
    escaped: bool = False
    """The content that follows is written as the inside of a JSON string."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatShape:
    """What a template writes around the contents of messages."""

    starts: tuple[Mark, ...]
    """Before the first message; the longest that fits is taken."""
    replies: tuple[Mark, ...]
    """Between an assistant's words and the next message."""
    inner: Mapping[str, tuple[Mark, ...]]
    """Between two messages of which none is the assistant's, by the first one's role."""
    closings: Mapping[str, str]
    """Between a message and the assistant's words, by the message's role."""
    end: str
    """Spelling of the id that ends an assistant's turn."""
    tokenizer: str
    """Fingerprint of the tokenizer whose template this is."""
    delimiters: frozenset[str] = field(default=frozenset())
    """Control tokens that no message's content may spell: they would end it."""

    @classmethod
    def of(cls, tokenizer: ChatTokenizer) -> ChatShape:
        """The shape of the tokenizer's template; FormatError when it can't be told."""
        return _learn(tokenizer)

    def read_prompt(self, text: str) -> tuple[list[dict[str, str]], str]:
        """Messages of a prompt and the opening.

        Earlier words of an assistant, in a history that was rewritten, are messages too. A prompt
        of another shape is one message, `rendered` for the tokenizer of that fingerprint.
        """
        try:
            return self._read(text, self.starts)
        except FormatError:
            return self._rendered("system", text)

    def read_reply(self, text: str) -> tuple[list[dict[str, str]], str]:
        """Messages between two turns of the assistant, and the opening; `text` begins with what
        ends the assistant's turn. A reply of another shape is one message, as a prompt is."""
        try:
            return self._read(text, self.replies)
        except FormatError:
            if not text.startswith(self.end):
                raise
            return self._rendered("user", text[len(self.end) :])

    def _read(self, text: str, starts: Sequence[Mark]) -> tuple[list[dict[str, str]], str]:
        mark = next((each for each in starts if text.startswith(each.text)), None)
        if mark is None:
            raise FormatError(f"the chat template does not begin a turn with {text[:40]!r}")
        messages: list[dict[str, str]] = []
        at = len(mark.text)
        while True:
            place, following = self._next(text, at, mark.role)
            content = text[at:place]
            if mark.escaped:
                content = _unescaped(content)
            messages.append({"role": mark.role, "content": content})
            if following is None:
                at = place + len(self.closings[mark.role])
                place, following = _first(text, at, self.replies)
                if following is None:
                    return messages, text[at:]
                messages.append({"role": "assistant", "content": text[at:place]})
            at, mark = place + len(following.text), following

    def _rendered(self, role: str, text: str) -> tuple[list[dict[str, str]], str]:
        """All of it as one message; the opening is told where the template speaks before it."""
        closings = [(text.rfind(each), len(each)) for each in self.closings.values()]
        place, size = max(closings)
        end = place + size if place >= 0 else len(text)
        message = {"role": role, "content": text[:end], "rendered": self.tokenizer}
        return [message], text[end:]

    def _next(self, text: str, at: int, role: str) -> tuple[int, Mark | None]:
        """Where this content ends, and the mark there; None for the assistant's turn."""
        place, following = _first(text, at, self.inner.get(role, ()))
        closing = self.closings.get(role)
        end = text.find(closing, at) if closing else -1
        if end >= 0 and (following is None or end <= place):
            return end, None
        if following is None:
            raise FormatError(f"the chat template does not end a message of {role} so")
        return place, following


def _first(text: str, at: int, marks: Sequence[Mark]) -> tuple[int, Mark | None]:
    """The first of `marks` in `text` from `at` on, the longest of those that begin there."""
    found = [
        (place, -len(mark.text), mark) for mark in marks if (place := text.find(mark.text, at)) >= 0
    ]
    if not found:
        return -1, None
    place, _, mark = min(found, key=lambda item: item[:2])
    return place, mark


def _learn(tokenizer: ChatTokenizer) -> ChatShape:
    control = frozenset(token for token in tokenizer.control_tokens() if token.strip())
    user, words = _message("user", _USER), _message("assistant", _WORDS)
    plain = _pieces(_rendered(tokenizer, [user, words, _message("user", _NEXT)]),
                    [_USER, _WORDS, _NEXT])  # fmt: skip
    if plain is None:
        raise FormatError("the chat template drops or changes messages: they can't be read back")
    first, to_words, to_user, closing = plain
    starts = [Mark(text=first, role="user")]
    inner: dict[str, tuple[Mark, ...]] = {}
    system = _pieces(_rendered(tokenizer, [_message("system", _SYSTEM), user]), [_SYSTEM, _USER])
    if system is not None and _holds(system[1], control):
        starts.append(Mark(text=system[0], role="system"))
        inner["system"] = (Mark(text=system[1], role="user"),)
    for text in (to_user, closing):
        if not _holds(text, control):
            raise FormatError("the chat template marks turns with no control token")
    replies, closings = [Mark(text=to_user, role="user")], {"user": closing}
    _learn_results(tokenizer, [user, words], control, replies, inner, closings)
    around = to_words + to_user + closing
    end = tokenizer.decode([tokenizer.end_of_turn], control=True)
    return ChatShape(
        # The longest first: without a system message some templates write one of their own.
        starts=tuple(sorted(starts, key=lambda mark: -len(mark.text))),
        replies=tuple(sorted(replies, key=lambda mark: -len(mark.text))),
        inner=inner,
        closings=closings,
        end=end,
        tokenizer=fingerprint(tokenizer),
        delimiters=frozenset(token for token in control if token in around) | {end},
    )


def _learn_results(
    tokenizer: ChatTokenizer,
    before: list[dict[str, object]],
    control: frozenset[str],
    replies: list[Mark],
    inner: dict[str, tuple[Mark, ...]],
    closings: dict[str, str],
) -> None:
    """How results of tools are written, where the template takes any."""
    results = [_message("tool", text) for text in (_RESULT, _RESULT2)]
    text = _rendered(tokenizer, [*before, *results])
    escaped = text is not None and _RESULT not in text
    shown = [json.dumps(each)[1:-1] if escaped else each for each in (_RESULT, _RESULT2)]
    found = _pieces(text, [_WORDS, *shown])
    if found is None or not (_holds(found[1], control) and _holds(found[3], control)):
        return
    if any(probe in each for each in found[1:] for probe in (_NAME, _CALL)):
        return  # results name their call or tool, which is not known here
    replies.append(Mark(text=found[1], role="tool", escaped=escaped))
    inner["tool"] = (Mark(text=found[2], role="tool", escaped=escaped),)
    closings["tool"] = found[3]


def _message(role: str, content: str) -> dict[str, object]:
    message: dict[str, object] = {"role": role, "content": content}
    if role == "tool":
        message |= {"name": _NAME, "tool_call_id": _CALL}
    return message


def _rendered(tokenizer: ChatTokenizer, messages: Sequence[Mapping[str, object]]) -> str | None:
    """The text; with an empty list of tools for a template that needs one; None when refused."""
    try:
        return tokenizer.render_chat(messages, add_generation_prompt=True)
    except TemplateRefusal:
        pass
    try:
        return tokenizer.render_chat(messages, tools=(), add_generation_prompt=True)
    except TemplateRefusal:
        return None


def _pieces(text: str | None, words: Sequence[str]) -> list[str] | None:
    """The texts before, between and after `words`, which must occur in that order, once each."""
    if text is None:
        return None
    pieces: list[str] = []
    for word in words:
        piece, found, text = text.partition(word)
        if not found:
            return None
        pieces.append(piece)
    return [*pieces, text]


def _holds(text: str, control: frozenset[str]) -> bool:
    return any(token in text for token in control)


def _unescaped(text: str) -> str:
    try:
        value = json.loads(f'"{text}"')
    except ValueError:
        raise FormatError(
            "a tool's result is not the JSON string that the template writes"
        ) from None
    return str(value)
