"""A policy with no model: it answers from a function of the text it is shown.

A documented part of the kit: it drives rollouts in tests, benchmarks and dry runs at no cost,
and keeps every promise of the Policy protocol that does not need a model (ids in, ids out, one
log-probability an id, a version).
"""

from __future__ import annotations

from collections.abc import Callable

from .policy import Completion, SampleRequest
from .render import ChatTokenizer


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
