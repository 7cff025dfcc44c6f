"""Chats as JSON lines, one segment of a trajectory a line: messages, and the ids on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchgym.agent.chat import ChatTokenizer

from .conversation import conversations
from .facts import RolloutFacts
from .shape import ChatShape


def chat_rows(
    facts: RolloutFacts, tokenizer: ChatTokenizer, shape: ChatShape, *, tokens: str = ""
) -> Iterator[dict[str, Any]]:
    """The rows of one trajectory. `tokens` is the tokenizer's fingerprint: ids go along then."""
    parts = conversations(facts.stored.trajectory, tokenizer, shape)
    for number, part in enumerate(parts):
        row: dict[str, Any] = {**facts.labels(), "messages": part.messages()}
        if len(parts) > 1:
            row |= {"segment": number, "segments": len(parts)}
        if tokens:
            row["tokens"] = {
                "tokenizer": tokens,
                "ids": list(part.tokens),
                "loss_mask": [int(learned) for learned in part.loss_mask],
            }
        yield row
