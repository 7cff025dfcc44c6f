"""Messages to one sequence of ids with a loss mask, by the model's own template.

    prompt [prefill] sampled end | reply [prefill] sampled end | ...
                     ~~~~~~~~~~~                   ~~~~~~~~~~~   in the loss

Texts between turns come from `agent.chat`, as in rollouts: a conversation that a rollout had gives
the ids that the rollout had, where what was sampled is how the tokenizer spells it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.agent.action import ToolSpec
from patchgym.agent.chat import (
    ChatTokenizer,
    TemplateRefusal,
    encode_prompt,
    encode_reply,
)

from .errors import FormatError

_OURS = ("prefill", "finish", "loss")
"""Keys of a message that are no template's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SftSequence:
    """One sequence to imitate."""

    tokens: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    """True where the token is to be learned; of the length of `tokens`, never at its first."""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.loss_mask):
            raise FormatError(
                f"{len(self.tokens)} ids and a loss mask of {len(self.loss_mask)} don't fit"
            )
        if not any(self.loss_mask):
            raise FormatError("nothing in it is to be learned")
        if self.loss_mask[0]:
            raise FormatError("its first token is to be learned: nothing predicts it")
        if min(self.tokens) < 0:
            raise FormatError(f"it holds the token id {min(self.tokens)}")


def sft_sequence(
    tokenizer: ChatTokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[ToolSpec] = (),
    delimiters: frozenset[str] = frozenset(),
    rendered: str = "",
) -> SftSequence:
    """The conversation's ids; what stands after the assistant's last words is left out.

    An assistant's message may say how it began and ended: `prefill`, a beginning that is context;
    `finish`, `stop` or `length` where the end of the turn is context too; `loss`, false where all
    of it is. A message that is `rendered` holds as `ids` all that is before the assistant's turn,
    made for the tokenizer of that fingerprint, which must be `rendered`. FormatError for a
    conversation that makes no sense, that the template refuses, or that spells one of `delimiters`
    in a message.
    """
    _check(messages, delimiters, rendered)
    tokens: list[int] = []
    mask: list[bool] = []

    def add(ids: Sequence[int], learned: bool) -> None:
        tokens.extend(ids)
        mask.extend([learned] * len(ids))

    before: list[Mapping[str, Any]] = []
    try:
        for message in messages:
            if message["role"] != "assistant":
                before.append(_template_message(message))
                continue
            prefill = str(message.get("prefill", ""))
            if before and before[0].get("rendered"):
                add(before[0]["ids"], False)
            elif tokens:
                add(encode_reply(tokenizer, tokens[-1], before, opening=prefill), False)
            else:
                add(encode_prompt(tokenizer, before, tools=tools, opening=prefill), False)
            learned = message.get("loss", True)
            add(tokenizer.encode(message["content"][len(prefill) :]), learned)
            if message.get("finish", "eos") == "eos":
                add([tokenizer.end_of_turn], learned)
            before = []
    except TemplateRefusal as error:
        raise FormatError(str(error)) from error
    return SftSequence(tokens=tuple(tokens), loss_mask=tuple(mask))


def _template_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """What the template gets; results of tools need a name and a call, whatever they are."""
    known = {key: value for key, value in message.items() if key not in _OURS}
    if message["role"] == "tool":
        known = {"name": "tool", "tool_call_id": "000000000", **known}
    return known


def _check(
    messages: Sequence[Mapping[str, Any]], delimiters: frozenset[str], rendered: str
) -> None:
    """FormatError for what is no conversation."""
    speaker = ""
    for number, message in enumerate(messages, 1):
        role, content = message.get("role"), message.get("content")
        if role not in ("system", "user", "assistant", "tool"):
            raise FormatError(f"message {number} has the role {role!r}")
        if not isinstance(content, str):
            raise FormatError(f"message {number} has no text in `content`")
        if role == "assistant" and speaker in ("", "assistant"):
            why = "begins the conversation" if not speaker else "follows another of the assistant"
            raise FormatError(f"message {number} is the assistant's and {why}")
        prefill = message.get("prefill", "")
        if not isinstance(prefill, str) or not content.startswith(prefill):
            raise FormatError(f"message {number} does not begin with its `prefill`")
        if message.get("rendered"):
            _check_rendered(messages, number, speaker, rendered)
            speaker = role
            continue
        spelled = next((token for token in delimiters if token in content), None)
        if spelled is not None:
            raise FormatError(f"message {number} spells the control token {spelled}")
        speaker = role
    if not any(message["role"] == "assistant" for message in messages):
        raise FormatError("no message is the assistant's")


def _check_rendered(
    messages: Sequence[Mapping[str, Any]], number: int, speaker: str, rendered: str
) -> None:
    """A rendered text stands alone between two turns of the assistant, and is of this tokenizer."""
    following = messages[number].get("role") if number < len(messages) else "assistant"
    if speaker not in ("", "assistant") or following != "assistant":
        raise FormatError(f"message {number} is rendered and has others beside it")
    message = messages[number - 1]
    if message["rendered"] != rendered:
        raise FormatError(f"message {number} was rendered for another model's tokenizer")
    ids = message.get("ids")
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise FormatError(f"message {number} is rendered and has no list of ids")
