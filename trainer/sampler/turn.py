"""One request on its way through the sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from patchgym.agent.policy import Completion, SampleRequest
from patchgym.trainer.model.tokenizer import Tokenizer

Outcome: TypeAlias = Completion | BaseException
Finish: TypeAlias = Literal["eos", "stop", "length"]

_BELOW_ONE = np.float32(1 - 2**-24)


@dataclass(slots=True, eq=False)
class Turn:
    """A request, what was sampled for it so far, and whom to tell."""

    request: SampleRequest
    tokenizer: Tokenizer
    deliver: Callable[[Outcome], None]
    """Called once, from the engine's thread; must not block."""
    cancelled: bool = False
    """Set by the caller when it went away."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    draws: npt.NDArray[np.float32] = field(init=False)
    """Uniform numbers in [0, 1), one for each token that may be sampled."""
    _text: bytearray = field(default_factory=bytearray)
    _stops: tuple[bytes, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Derive the turn's own random numbers: its seed and its place decide, nothing else."""
        request = self.request
        entropy = (request.seed % 2**64, len(request.tokens))
        stream = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
        draws = stream.random(request.max_new_tokens).astype(np.float32)
        self.draws = np.minimum(draws, _BELOW_ONE)
        self._stops = tuple(text.encode() for text in request.stop if text)

    def upcoming(self, steps: int) -> npt.NDArray[np.float32]:
        """The draws for the next `steps` tokens, zeros past the last."""
        rest = self.draws[len(self.tokens) : len(self.tokens) + steps]
        return np.pad(rest, (0, steps - len(rest)))

    def accept(self, token: int, logprob: float) -> Finish | None:
        """Take one sampled token; says why the turn is over, or None."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if token in self.tokenizer.end_ids:
            return "eos"
        if self._stops and self._stopped(self.tokenizer.token_bytes(token)):
            return "stop"
        return "length" if len(self.tokens) >= self.request.max_new_tokens else None

    def completion(self, version: int, finish: Finish) -> Completion:
        """The finished turn."""
        return Completion(
            tokens=tuple(self.tokens),
            logprobs=tuple(self.logprobs),
            policy_version=version,
            finish=finish,
        )

    def _stopped(self, piece: bytes) -> bool:
        """Whether `piece` completes a stop text; only what is new can."""
        before = len(self._text)
        self._text += piece
        return any(
            self._text.find(stop, max(0, before - len(stop) + 1)) >= 0 for stop in self._stops
        )
