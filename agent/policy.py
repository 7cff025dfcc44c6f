"""What a rollout asks of a model: token ids in, sampled token ids with their logprobs out.

Every policy keeps the same promises, whatever runs behind it, and `patchgym.agent.policies.check`
holds it to them: ids in and ids out (no text is tokenized anywhere on the way), one natural-log
probability for each sampled id, the policy_version of every id, and cancellation that gives the
place in the batch back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

Finish = Literal["eos", "stop", "length"]


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
class VersionSpan:
    """Neighbouring sampled ids that one version of the weights gave."""

    policy_version: int
    tokens: int
    """How many, at least one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the model sampled for one request."""

    tokens: tuple[int, ...]
    """Sampled ids, at least one; the end-of-turn id is among them when it was sampled."""
    logprobs: tuple[float, ...]
    """Natural logarithm of each token's probability under the distribution sampled from."""
    policy_version: int
    """The oldest version of the weights that sampled one of these tokens."""
    finish: Finish
    """Why the turn ended: an end-of-turn id, a stop text, or `max_new_tokens`."""
    spans: tuple[VersionSpan, ...] = ()
    """Versions in the order of the ids, where weights changed in the middle of the turn; empty when
    `policy_version` sampled every one."""

    def versions(self) -> tuple[int, ...]:
        """The policy_version of each sampled id."""
        if not self.spans:
            return (self.policy_version,) * len(self.tokens)
        return tuple(span.policy_version for span in self.spans for _ in range(span.tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoad:
    """How busy a policy is now; what admission follows."""

    running: int = 0
    """Turns being sampled."""
    waiting: int = 0
    """Turns in line for a place in the batch."""
    cache_use: float = 0.0
    """Share of the key/value memory in use, from 0 to 1."""
    preemptions: int = 0
    """Turns that lost their place for lack of memory, since the start."""


class Policy(Protocol):
    """A model that can be asked for turns, by many rollouts at once."""

    @property
    def version(self) -> int:
        """The newest version of the weights; a turn that starts now is sampled with it."""
        ...

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one turn. Cancelling the call gives its place in the batch back."""
        ...

    def load(self) -> PolicyLoad:
        """How busy it is; cheap, never waits."""
        ...


class CompletionError(Exception):
    """A policy broke the protocol; says how. Nothing of its answer is used."""


def check_completion(request: SampleRequest, completion: Completion) -> Completion:
    """`completion` itself, or CompletionError that names what is wrong with it."""
    tokens, logprobs = completion.tokens, completion.logprobs
    if not tokens:
        raise CompletionError("the policy sampled no token at all")
    if len(logprobs) != len(tokens):
        raise CompletionError(
            f"the policy gave {len(tokens)} tokens and {len(logprobs)} log-probabilities"
        )
    if len(tokens) > request.max_new_tokens:
        raise CompletionError(
            f"the policy gave {len(tokens)} tokens where {request.max_new_tokens} were allowed"
        )
    if min(tokens) < 0:
        raise CompletionError(f"the policy gave the token id {min(tokens)}")
    bad = next((p for p in logprobs if not math.isfinite(p) or p > 1e-3), None)
    if bad is not None:
        raise CompletionError(
            f"the policy gave the log-probability {bad}: finite and <= 0 it must be"
        )
    spans = completion.spans
    if spans and sum(span.tokens for span in spans) != len(tokens):
        raise CompletionError("the policy's version spans don't cover its tokens")
    if spans and min(span.policy_version for span in spans) != completion.policy_version:
        raise CompletionError("policy_version is not the oldest version of the spans")
    return completion
