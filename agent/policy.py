"""What a rollout asks of a model: token ids in, sampled token ids with their logprobs out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One turn to sample. Tokens go in as ids, so that text is never tokenized twice."""

    rollout_id: str
    """The rollout that asks; all turns of a rollout share it."""
    tokens: tuple[int, ...]
    """The whole context so far, as token ids."""
    max_new_tokens: int
    """The most tokens to sample, at least one."""
    stop: tuple[str, ...] = ()
    """Texts that end the turn: the token that completes one is kept as the last."""
    seed: int = 0
    """The turn's own random stream: the same seed, weights and context give the same draw
    (within floating-point noise of batching), whoever shares the batch."""
    temperature: float = 1.0
    """Divides the logits; 0 takes the most likely token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the model sampled for one request."""

    tokens: tuple[int, ...]
    """Sampled ids, at least one; the end-of-turn id is among them when it was sampled."""
    logprobs: tuple[float, ...]
    """Natural logarithm of each token's probability under the distribution sampled from."""
    policy_version: int
    """The version of the weights that sampled every one of these tokens."""
    finish: Literal["eos", "stop", "length"]
    """Why the turn ended: an end-of-turn id, a stop text, or `max_new_tokens`."""


class Policy(Protocol):
    """A model that can be asked for turns, by many rollouts at once."""

    @property
    def version(self) -> int:
        """The newest version of the weights; a turn that starts now is sampled with it."""
        ...

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn. Cancelling the call gives its place in the batch back."""
        ...
