"""The record of one rollout: exactly the ids that the sampler saw and gave, turn by turn.

A trajectory's sequence is `context, completion, context, completion, ...`; text is kept beside
the ids for people and is never tokenized again (rule 11). Where an agent rewrote its history, a
turn `restarts`: its context is the whole sequence anew, and a new segment begins there. Every
segment is trained as a sequence of its own, with the trajectory's one reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .action import Observation, ToolCall
from .policy import Completion
from .stop_reason import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One completion and the observations that answer it."""

    context: tuple[int, ...]
    """Ids between the last completion and this one: the prompt, or observations."""
    completion: Completion
    """Sampled ids with their log-probabilities (nats) and policy version."""
    text: str
    """The completion decoded, for people."""
    calls: tuple[ToolCall, ...] = ()
    """What the agent read out of it; empty when it could not."""
    observations: tuple[Observation, ...] = ()
    """What came of each call, or what was wrong with the format; empty for a turn that was cut
    off before the environment answered."""
    restarts: bool = False
    """`context` replaces everything before it."""
    sample_seconds: float = 0.0
    """Wall seconds from asking the policy to its answer."""
    tool_seconds: float = 0.0
    """Wall seconds of the environment's answer."""

    @property
    def done(self) -> bool:
        """An observation ended the rollout."""
        return any(observation.done for observation in self.observations)

    @property
    def handed_in(self) -> bool:
        """The rollout ended because the work was handed in, whatever it is worth."""
        return any(observation.kind == "submitted" for observation in self.observations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a trajectory that is one sequence of ids; all tuples have its length n."""

    tokens: tuple[int, ...]
    """Ids in the order in which the sampler saw and gave them."""
    loss_mask: tuple[bool, ...]
    """True on sampled ids only."""
    sampler_logprobs: tuple[float, ...]
    """The sampler's log-probability (nats) of each sampled id, 0 elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """A finished rollout."""

    rollout_id: str
    task_id: str
    seed: int
    """Root of this rollout's random streams."""
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    outcome: bytes = b""
    """What is scored: the candidate patch, or whatever the environment makes."""
    error: str = ""
    """For failures: what failed, in one line."""
    seconds: float = 0.0
    """Wall seconds from start to end, waits included."""
    replayed: int = 0
    """Turns at the start that were sampled in an earlier attempt and replayed."""

    @property
    def oldest_version(self) -> int:
        """The oldest policy version among the turns; -1 when there is none."""
        return min((turn.completion.policy_version for turn in self.turns), default=-1)

    @property
    def sampled_tokens(self) -> int:
        """How many ids the policy gave."""
        return sum(len(turn.completion.tokens) for turn in self.turns)

    def segments(self) -> tuple[Segment, ...]:
        """The sequences to train on; one, unless the agent rewrote its history."""
        return tuple(_segment(turns) for turns in self._runs())

    def _runs(self) -> Iterator[list[Turn]]:
        run: list[Turn] = []
        for turn in self.turns:
            if turn.restarts and run:
                yield run
                run = []
            run.append(turn)
        if run:
            yield run


def _segment(turns: list[Turn]) -> Segment:
    """Contexts and completions of `turns` in one row."""
    tokens: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for turn in turns:
        given = turn.completion
        tokens += (*turn.context, *given.tokens)
        mask += (*(False,) * len(turn.context), *(True,) * len(given.tokens))
        logprobs += (*(0.0,) * len(turn.context), *given.logprobs)
    return Segment(tokens=tuple(tokens), loss_mask=tuple(mask), sampler_logprobs=tuple(logprobs))
