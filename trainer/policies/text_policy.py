"""A chat endpoint behind the agents and rollouts that work with ids: one id a character.

    ids ──decode──► messages ──► endpoint ──► text ──encode──► ids, log-probability 0

The ids are characters and no model's tokens, and the log-probabilities are made up, so nothing of
it may ever be trained on. Two things see to that: every completion has the policy_version
`TEXT_VERSION`, older than any bound on staleness lets through where groups are trained; and this
policy takes no weights, so that no run can be opened with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from patchgym.agent import CharacterTokenizer
from patchgym.agent.chat import neutralize
from patchgym.agent.policies import TextPolicy
from patchgym.agent.policy import Completion, Finish, PolicyLoad, SampleRequest

TEXT_VERSION = -(1 << 31)
"""The policy_version of text: always too stale to be trained on."""

CONTEXT_CHARACTERS = 4
"""Characters that a token of context counts for."""

TURN_CHARACTERS = 8
"""Characters that a sampled token counts for: more than text has, so that none is cut off."""


class TextTokenizer(CharacterTokenizer):
    """`CharacterTokenizer`, in time linear in the text."""

    _MARK = re.compile(r"<\|im_start\|>|<\|im_end\|>")

    def encode(self, text: str) -> list[int]:
        """Control tokens become ids 0 and 1, a character its code point plus 2."""
        ids: list[int] = []
        kept = 0
        for mark in self._MARK.finditer(text):
            ids += (ord(letter) + 2 for letter in text[kept : mark.start()])
            ids.append(int(mark[0] == self._CONTROL[1]))
            kept = mark.end()
        ids += (ord(letter) + 2 for letter in text[kept:])
        return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """What an endpoint counted for one rollout."""

    prompt: int = 0
    """Tokens of all contexts, each turn's in full."""
    sampled: int = 0
    calls: int = 0

    def __add__(self, other: TokenUse) -> TokenUse:
        return TokenUse(
            prompt=self.prompt + other.prompt,
            sampled=self.sampled + other.sampled,
            calls=self.calls + other.calls,
        )


class TextAdapter:
    """Implements `agent.Policy` over a `TextPolicy`; for evaluation only (see the module)."""

    version = TEXT_VERSION

    def __init__(self, endpoint: TextPolicy, tokenizer: TextTokenizer) -> None:
        self._endpoint = endpoint
        self._tokenizer = tokenizer
        self._running = 0
        self._use: dict[str, TokenUse] = defaultdict(TokenUse)

    async def sample(self, request: SampleRequest) -> Completion:
        """Ask for the next message. Stop texts are kept here: endpoints leave them out."""
        messages, opening = read_messages(self._tokenizer, request.tokens)
        if opening:
            messages[-1]["content"] += f"\n\nBegin your answer with exactly:\n{opening.rstrip()}"
        self._running += 1
        try:
            answer = await self._endpoint.chat(
                messages,
                max_new_tokens=max(1, request.max_new_tokens // TURN_CHARACTERS),
                temperature=request.temperature,
                seed=request.seed,
            )
        finally:
            self._running -= 1
        self._use[request.rollout_id] += TokenUse(
            prompt=answer.prompt_tokens, sampled=answer.completion_tokens, calls=1
        )
        text = _behind(answer.text, opening)
        cut, finish = _cut(text, request.stop)
        if finish == "eos" and answer.finish == "length":
            finish = "length"
        return self._completion(cut, finish, request.max_new_tokens)

    def load(self) -> PolicyLoad:
        """Calls under way."""
        return PolicyLoad(running=self._running)

    def use(self, rollout_id: str) -> TokenUse:
        """What a rollout has cost so far."""
        return self._use.get(rollout_id, TokenUse())

    def _completion(self, text: str, finish: Finish, most: int) -> Completion:
        ids = self._tokenizer.encode(neutralize(self._tokenizer, text))
        if finish == "eos":
            ids.append(self._tokenizer.end_of_turn)
        if len(ids) > most:
            ids, finish = ids[:most], "length"
        ids = ids or [ord(" ") + 2]  # a turn is never empty
        return Completion(
            tokens=tuple(ids),
            logprobs=(0.0,) * len(ids),
            policy_version=TEXT_VERSION,
            finish=finish,
        )


def read_messages(
    tokenizer: TextTokenizer, tokens: Sequence[int]
) -> tuple[list[dict[str, str]], str]:
    """The chat in a context, and the words put into the assistant's mouth.

    A message is `<|im_start|>role, a line break, content, <|im_end|>`; what follows the last
    `<|im_start|>assistant` is the opening. ValueError when the context ends otherwise.
    """
    text = tokenizer.decode(tokens, control=True)
    messages: list[dict[str, str]] = []
    for piece in text.split("<|im_start|>")[1:]:
        role, _, rest = piece.partition("\n")
        content, ended, _ = rest.partition("<|im_end|>")
        if not ended:
            if role != "assistant" or not messages:
                break
            return messages, content
        messages.append({"role": role, "content": content})
    raise ValueError("the context does not end where an assistant is to speak")


def _behind(text: str, opening: str) -> str:
    """`text` from behind the opening, which an endpoint writes itself; all of it without one."""
    mark = opening.strip()
    if not mark or mark not in text:
        return text
    rest = text[text.index(mark) + len(mark) :]
    return rest.removeprefix("\n") if opening.endswith("\n") else rest


def _cut(text: str, stop: Sequence[str]) -> tuple[str, Finish]:
    """`text` up to the end of the first stop text in it."""
    ends = [text.index(each) + len(each) for each in stop if each in text]
    return (text[: min(ends)], "stop") if ends else (text, "eos")
