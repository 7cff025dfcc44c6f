"""One rollout's conversation as ids: what was sampled, what was put in between, what is dropped.

Sampled ids are kept as they came. A reply is kept with its messages too, so that it can be rendered
once more as a stub when old output must go; what was sampled around it stays the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchgym.agent.action import Observation, ToolSpec
from patchgym.agent.agent import Context
from patchgym.agent.chat import ChatTokenizer, Message, encode_prompt, encode_reply, neutralize
from patchgym.agent.policy import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A completion and the reply to it."""

    sampled: tuple[int, ...]
    messages: tuple[Message, ...]
    """The reply's."""
    stub: str
    """What stands for its texts once it is dropped."""
    reply: tuple[int, ...]
    dropped: bool = False


class Dialogue:
    """Hands out new ids, and all of them anew when old observations had to go."""

    def __init__(self, tokenizer: ChatTokenizer, *, keep_observations: int) -> None:
        """`keep_observations`: how many of the newest stay whole; 0 for all, always."""
        self.tokenizer = tokenizer
        self._keep = keep_observations
        self._prompt: tuple[int, ...] = ()
        self._exchanges: list[Exchange] = []
        self._sampled: tuple[int, ...] = ()

    def open(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Context:
        """The prompt."""
        self._prompt = encode_prompt(self.tokenizer, messages, tools=tools)
        return Context(tokens=self._prompt)

    def take(self, completion: Completion) -> str:
        """Note what was sampled; its text, control tokens spelled, the end of the turn left out."""
        self._sampled = completion.tokens
        tokens = completion.tokens
        if tokens and tokens[-1] in self.tokenizer.end_ids:
            tokens = tokens[:-1]
        return _decoded(self.tokenizer, tokens)

    def reply(self, messages: Sequence[Message], stub: str, *, room: int) -> Context:
        """What comes next; everything anew where it would not fit and dropping output helps."""
        ids = encode_reply(self.tokenizer, self._sampled[-1], messages)
        exchange = Exchange(sampled=self._sampled, messages=tuple(messages), stub=stub, reply=ids)
        self._exchanges.append(exchange)
        if self._keep and self._length() > room and self._drop():
            return Context(tokens=self._everything(), restarts=True)
        return Context(tokens=ids)

    def _length(self) -> int:
        pieces = ((len(e.sampled), len(e.reply)) for e in self._exchanges)
        return len(self._prompt) + sum(map(sum, pieces))

    def _drop(self) -> bool:
        """Put stubs in the place of all but the newest replies; whether that made it shorter."""
        before = self._length()
        old = self._exchanges[: -self._keep]
        self._exchanges[: len(old)] = [self._stubbed(exchange) for exchange in old]
        return self._length() < before

    def _stubbed(self, exchange: Exchange) -> Exchange:
        if exchange.dropped:
            return exchange
        stub = neutralize(self.tokenizer, exchange.stub)
        messages = [
            {**message, "content": stub if place == 0 else "(as above)"}
            for place, message in enumerate(exchange.messages)
        ]
        ids = encode_reply(self.tokenizer, exchange.sampled[-1], messages)
        if len(ids) >= len(exchange.reply):
            return replace(exchange, dropped=True)
        return replace(exchange, reply=ids, dropped=True)

    def _everything(self) -> tuple[int, ...]:
        tokens = list(self._prompt)
        for exchange in self._exchanges:
            tokens += (*exchange.sampled, *exchange.reply)
        return tuple(tokens)


def stub_of(observations: Sequence[Observation]) -> str:
    """One line for output that is shown no longer."""
    tools = ", ".join(dict.fromkeys(o.tool for o in observations if o.tool))
    count = sum(len(o.text) for o in observations)
    return f"[old output{' of ' + tools if tools else ''} left out: {count:,} characters]"


def _decoded(tokenizer: ChatTokenizer, tokens: Sequence[int]) -> str:
    """Text of `tokens`; ids that no token has, which a padded output layer can sample, are shown
    as a replacement character."""
    try:
        return tokenizer.decode(tokens, control=True)
    except ValueError:
        return "".join(_one(tokenizer, token) for token in tokens)


def _one(tokenizer: ChatTokenizer, token: int) -> str:
    try:
        return tokenizer.decode([token], control=True)
    except ValueError:
        return "\ufffd"
