"""A trajectory's segments as conversations: the same turns once as messages and once as ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.agent import Trajectory, Turn
from patchgym.agent.chat import ChatTokenizer

from .errors import FormatError
from .shape import ChatShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What came before one turn of the assistant, and the turn."""

    before: tuple[dict[str, Any], ...]
    """Messages since the last turn; those of an assistant are of a history that was rewritten."""
    prefill: str
    """Words put into the assistant's mouth; they are no part of what it sampled."""
    said: str
    """What it sampled, control tokens spelled, the end of the turn left out."""
    turn: Turn
    prompt: tuple[int, ...]
    """Ids of everything before what was sampled, from the segment's start."""

    @property
    def message(self) -> dict[str, Any]:
        """The turn as a message: `prefill` is the part of it that was not sampled, `finish` is
        `stop` or `length` where the end of the turn was not sampled either."""
        message: dict[str, Any] = {"role": "assistant", "content": self.prefill + self.said}
        if self.prefill:
            message["prefill"] = self.prefill
        if self.turn.completion.finish != "eos":
            message["finish"] = self.turn.completion.finish
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One segment of a trajectory."""

    exchanges: tuple[Exchange, ...]
    """At least one."""
    tokens: tuple[int, ...]
    """Ids as the model saw and gave them."""
    loss_mask: tuple[bool, ...]
    """True on sampled ids; of the length of `tokens`."""

    def messages(self) -> list[dict[str, Any]]:
        """All messages in order."""
        return [message for each in self.exchanges for message in (*each.before, each.message)]


def conversations(
    trajectory: Trajectory, tokenizer: ChatTokenizer, shape: ChatShape
) -> list[Conversation]:
    """The trajectory's segments; FormatError when their ids can't be read as a chat."""
    if not trajectory.turns:
        raise FormatError("it has no turn")
    segments = trajectory.segments()
    parts = _parts(trajectory.turns)
    try:
        return [
            Conversation(
                exchanges=tuple(_exchanges(turns, tokenizer, shape)),
                tokens=segment.tokens,
                loss_mask=segment.loss_mask,
            )
            for turns, segment in zip(parts, segments, strict=True)
        ]
    except ValueError as error:  # an id outside the vocabulary
        raise FormatError(f"its ids are not this tokenizer's: {error}") from error


def _parts(turns: Sequence[Turn]) -> list[list[Turn]]:
    parts: list[list[Turn]] = [[]]
    for turn in turns:
        if turn.restarts and parts[-1]:
            parts.append([])
        parts[-1].append(turn)
    return parts


def _exchanges(
    turns: Sequence[Turn], tokenizer: ChatTokenizer, shape: ChatShape
) -> Iterator[Exchange]:
    history: tuple[int, ...] = ()
    last = -1
    for place, turn in enumerate(turns):
        text = tokenizer.decode(turn.context, control=True)
        prompt = history + turn.context
        if place and last in tokenizer.end_ids:
            text = shape.end + text
        before, prefill = (shape.read_reply if place else shape.read_prompt)(text)
        yield _exchange(before, prefill, turn, prompt, tokenizer)
        last = turn.completion.tokens[-1]
        history = prompt + turn.completion.tokens


def _exchange(
    before: Sequence[dict[str, Any]],
    prefill: str,
    turn: Turn,
    prompt: tuple[int, ...],
    tokenizer: ChatTokenizer,
) -> Exchange:
    ids = turn.completion.tokens
    said = ids[:-1] if ids[-1] in tokenizer.end_ids else ids
    return Exchange(
        before=tuple(_before(message, turn) for message in before),
        prefill=prefill,
        said=tokenizer.decode(said, control=True),
        turn=turn,
        prompt=prompt,
    )


def _before(message: dict[str, Any], turn: Turn) -> dict[str, Any]:
    """Words of an earlier turn are trained on in the segment that sampled them; a rendered text
    goes by its ids, since not every vocabulary spells its text the same way again."""
    if message["role"] == "assistant":
        return {**message, "loss": False}
    return {**message, "ids": list(turn.context)} if "rendered" in message else message
