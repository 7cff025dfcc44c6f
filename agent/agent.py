"""An agent: owns the prompt, the history and the parsing; knows token ids and no sandbox.

    open(opening, tools) -> Context ──► completion ──► act -> Action ──► observations
                                            ▲                                │
                                            └───── reply(...) -> Context ◄───┘

One agent lives for one rollout. It hands out *new* ids only: what the policy sampled is carried
along as ids by the rollout, never turned into text and back (rule 11). Where an agent rewrites the
history (old observations dropped, say), it hands out a context that `restarts`: the whole sequence
anew, and the trajectory goes on in another segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .action import Action, Observation, Opening, ToolSpec
from .policy import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Ids that come before the next completion."""

    tokens: tuple[int, ...]
    """New ids, to be put after everything so far."""
    restarts: bool = False
    """`tokens` replace everything so far: a new segment begins."""


class Agent(Protocol):
    """The model's side of one rollout."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn."""
        ...

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        """The prompt. `room` is how many ids the context of a turn may have."""
        ...

    def act(self, completion: Completion) -> Action:
        """Read a completion; what can't be read is an action with a `problem`, never an error."""
        ...

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        """What the policy is told next: answers to the last action's calls, in their order."""
        ...


AgentFactory = Callable[[], Agent]
"""Makes the agent of one rollout."""
