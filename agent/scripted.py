"""A policy and a tokenizer with no model: it answers from a function of the text it is shown.

A documented part of the kit: it drives rollouts in tests, benchmarks and dry runs at no cost,
and keeps every promise of the Policy protocol that does not need a model (ids in, ids out, one
log-probability an id, a version).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .chat.tokenizer import ChatTokenizer
from .policy import Completion, PolicyLoad, SampleRequest


class ScriptedPolicy:
    """Answers `answer(text_so_far, seed)`; every id gets log-probability 0 (it was certain)."""

    def __init__(
        self, tokenizer: ChatTokenizer, answer: Callable[[str, int], str], version: int = 0
    ) -> None:
        self._tokenizer = tokenizer
        self._answer = answer
        self.version = version

    async def sample(self, request: SampleRequest) -> Completion:
        """The scripted answer, cut at the request's length like any other."""
        text = self._answer(self._tokenizer.decode(request.tokens), request.seed)
        ids = [*self._tokenizer.encode(text), self._tokenizer.end_of_turn]
        cut = tuple(ids[: request.max_new_tokens])
        return Completion(
            tokens=cut,
            logprobs=(0.0,) * len(cut),
            policy_version=self.version,
            finish="eos" if len(cut) == len(ids) else "length",
        )

    def load(self) -> PolicyLoad:
        """Nothing is ever in line."""
        return PolicyLoad()


class CharacterTokenizer:
    """One id a character, and a chat template in the manner of ChatML: it needs no model."""

    _CONTROL = ("<|im_start|>", "<|im_end|>")

    def __init__(self) -> None:
        self.end_of_turn = 1
        self.end_ids = frozenset({1})

    def control_tokens(self) -> Sequence[str]:
        """Spellings of ids 0 and 1."""
        return self._CONTROL

    def encode(self, text: str) -> list[int]:
        """Control tokens become ids 0 and 1, a character its code point plus 2."""
        ids: list[int] = []
        while text:
            for index, token in enumerate(self._CONTROL):
                if text.startswith(token):
                    ids.append(index)
                    text = text[len(token) :]
                    break
            else:
                ids.append(ord(text[0]) + 2)
                text = text[1:]
        return ids

    def decode(self, tokens: Sequence[int], *, control: bool = False) -> str:
        """The characters; control tokens are spelled with `control`, left out without."""
        shown = self._CONTROL if control else ("", "")
        return "".join(shown[token] if token < 2 else chr(token - 2) for token in tokens)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool,
    ) -> str:
        """`<|im_start|>role, content, <|im_end|>` for each message; knows no tools."""
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")
