"""The record of one rollout: exactly the ids that the sampler saw and gave, turn by turn.

A trajectory's sequence is `context, completion, context, completion, ...`; text is kept beside
the ids for people and is never tokenized again (rule 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from patchgym.sandbox import Outcome

from .policy import Completion
from .stop_reason import StopReason

ObservationKind = Literal["tests", "format_error", "patch_refused", "no_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the environment answered to one action."""

    kind: ObservationKind
    """What happened to the answer."""
    text: str
    """What the policy reads, should there be another turn."""
    done: bool
    """The tests passed: no further turn is needed."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Outcome by test id; empty when no test ran."""
    messages: Mapping[str, str] = field(default_factory=dict)
    """Failure text by test id."""
    timed_out: bool = False
    """The test command hit its limit."""
    seconds: float = 0.0
    """Wall seconds in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One completion and the observation that answers it."""

    context: tuple[int, ...]
    """Ids between the last completion and this one: the prompt, or an observation."""
    completion: Completion
    """Sampled ids with their log-probabilities (nats) and policy version."""
    text: str
    """The completion decoded, for people."""
    answer: str | None
    """The parsed action's code; None when the completion holds none."""
    observation: Observation
    """What came of it."""
    diff: bytes
    """The sandbox's working tree against the base commit after this action."""
    sample_seconds: float
    """Wall seconds from asking the policy to its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A finished rollout."""

    rollout_id: str
    task_id: str
    seed: int
    """Root of this rollout's random streams."""
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    error: str = ""
    """For failures: what failed, in one line."""
    seconds: float = 0.0
    """Wall seconds from start to end, waits included."""

    @property
    def diff(self) -> bytes:
        """The candidate patch: the last turn's diff, or nothing."""
        return self.turns[-1].diff if self.turns else b""

    @property
    def oldest_version(self) -> int:
        """The oldest policy version among the turns; -1 when there is none."""
        return min((turn.completion.policy_version for turn in self.turns), default=-1)

    @property
    def sampled_tokens(self) -> int:
        """How many ids the policy gave."""
        return sum(len(turn.completion.tokens) for turn in self.turns)

    def tokens(self) -> tuple[int, ...]:
        """All ids in order, length n."""
        return tuple(i for turn in self.turns for i in (*turn.context, *turn.completion.tokens))

    def loss_mask(self) -> tuple[bool, ...]:
        """Length n: true on sampled ids only."""
        return tuple(
            mark
            for turn in self.turns
            for mark in (*(False,) * len(turn.context), *(True,) * len(turn.completion.tokens))
        )

    def sampler_logprobs(self) -> tuple[float, ...]:
        """Length n: the sampler's log-probability of each sampled id, 0 elsewhere."""
        return tuple(
            value
            for turn in self.turns
            for value in (*(0.0,) * len(turn.context), *turn.completion.logprobs)
        )
