"""The ids of one turn for a page: what was read and what was sampled, and with what probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.agent import Turn

from .vocabulary import Vocabulary

MOST = 4_000
"""Ids of one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWindow:
    """Some neighbouring ids of a turn."""

    start: int
    """Place of the first: 0 is the first id of the turn's context."""
    context: int
    """Ids of the turn that were read; those from here on were sampled."""
    total: int
    tokens: Sequence[tuple[int, str, float | None, int | None]]
    """Id, spelling, log-probability (nats) and policy version; None for ids that were read."""

    def record(self, note: str) -> dict[str, Any]:
        """JSON types; `note` is for whoever looks at them."""
        return {
            "start": self.start,
            "context": self.context,
            "total": self.total,
            "tokens": self.tokens,
            "note": note,
        }


def token_window(turn: Turn, vocabulary: Vocabulary, *, start: int, most: int) -> TokenWindow:
    """At most `most` ids of `turn` from `start` on; a negative `start` counts from its first
    sampled id."""
    completion = turn.completion
    read, total = len(turn.context), len(turn.context) + len(completion.tokens)
    begin = max(0, read + start if start < 0 else start)
    end = min(total, begin + max(0, min(most, MOST)))
    versions = completion.versions()
    tokens: list[tuple[int, str, float | None, int | None]] = []
    for place in range(begin, end):
        if place < read:
            token = turn.context[place]
            tokens.append((token, vocabulary.spelled(token), None, None))
            continue
        at = place - read
        token = completion.tokens[at]
        logprob = completion.logprobs[at] if at < len(completion.logprobs) else None
        version = versions[at] if at < len(versions) else None
        tokens.append((token, vocabulary.spelled(token), logprob, version))
    return TokenWindow(start=begin, context=read, total=total, tokens=tokens)
