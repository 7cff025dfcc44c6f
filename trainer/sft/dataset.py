"""What a supervised run trains on and measures: conversations, their split, their order.

Everything here is a function of the conversations and the seed: a resumed run goes on in the same
order, and the held-out share stays held out.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from patchgym.agent import stream_seed
from patchgym.trainer.formats import SftSequence

if TYPE_CHECKING:
    from patchgym.trainer.batching import TrainSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One conversation to imitate."""

    sequences: tuple[SftSequence, ...]
    """One, unless the agent rewrote its history."""
    source: str
    """Where it came from, for people: `chat.jsonl:3`, or a run and its rollout."""
    task: str
    """Examples of one task share their prompt and stay on one side of the split."""
    exact: bool
    """Its ids were stored; otherwise they were rendered from messages."""

    @property
    def tokens(self) -> int:
        """Tokens of all its sequences."""
        return sum(len(each.tokens) for each in self.sequences)

    @property
    def learned(self) -> int:
        """Tokens in the loss."""
        return sum(sum(each.loss_mask) for each in self.sequences)

    @property
    def longest(self) -> int:
        """Tokens of its longest sequence."""
        return max(len(each.tokens) for each in self.sequences)


@dataclass(slots=True, kw_only=True)
class Gathered:
    """What the sources came to."""

    examples: list[Example] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    """Why, by source."""
    left_out: int = 0
    """Rollouts of runs that `data.keep`, `per_task` or `min_reward` did not choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Conversations, split."""

    train: tuple[Example, ...]
    heldout: tuple[Example, ...]
    """Measured, never trained on; may be empty."""

    @property
    def digest(self) -> str:
        """Tells whether two runs have the same data, in the same order."""
        state = hashlib.sha256()
        for part in (self.train, self.heldout):
            for each in part:
                for sequence in each.sequences:
                    state.update(repr((sequence.tokens, sequence.loss_mask)).encode())
            state.update(b"|")
        return state.hexdigest()[:16]


def prompt_key(sequence: SftSequence) -> str:
    """Names the prompt of a sequence: all that stands before what is learned first."""
    prompt = sequence.tokens[: sequence.loss_mask.index(True)]
    return f"prompt {hashlib.sha256(repr(prompt).encode()).hexdigest()[:16]}"


def split(examples: Sequence[Example], share: float, seed: int) -> Dataset:
    """Hold out about `share` of the tasks, at least one of two or more, and never all.

    Which ones depends on their names and the seed alone, not on what else there is before them.
    """
    tasks = sorted({each.task for each in examples}, key=lambda task: _draw(seed, task))
    wanted = 0 if share == 0 else max(1, round(share * len(tasks)))
    chosen = set(tasks[: min(wanted, len(tasks) - 1)])
    return Dataset(
        train=tuple(each for each in examples if each.task not in chosen),
        heldout=tuple(each for each in examples if each.task in chosen),
    )


def _draw(seed: int, task: str) -> str:
    return hashlib.sha256(f"{seed} {task}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which conversations an optimizer update is made with."""

    examples: int
    batch: int
    """Conversations in an update; the last of an epoch may have fewer."""
    steps: int
    """Updates in all."""
    seed: int

    @classmethod
    def of(cls, examples: int, *, batch: int, epochs: int, steps: int, seed: int) -> Plan:
        """`steps` 0: as many as `epochs` takes."""
        per_epoch = math.ceil(examples / batch)
        return cls(examples=examples, batch=batch, steps=steps or epochs * per_epoch, seed=seed)

    @property
    def per_epoch(self) -> int:
        """Updates in an epoch."""
        return math.ceil(self.examples / self.batch)

    @property
    def epochs(self) -> int:
        """Epochs begun by the last update."""
        return math.ceil(self.steps / self.per_epoch)

    def ends_epoch(self, step: int) -> bool:
        """Whether an epoch, or the run, ends once `step` updates are made."""
        return step % self.per_epoch == 0 or step == self.steps

    def members(self, step: int) -> list[int]:
        """Places of the conversations of update `step`, from 0; each epoch has its own shuffle."""
        epoch, place = divmod(step, self.per_epoch)
        order = list(range(self.examples))
        random.Random(stream_seed(self.seed, "sft epoch", epoch)).shuffle(order)
        return order[place * self.batch : (place + 1) * self.batch]


def to_groups(examples: Iterable[Example]) -> list[list[TrainSequence]]:
    """The examples as the learner takes them: those of one task together, to share their prompt."""
    groups: dict[str, list[TrainSequence]] = {}
    for each in examples:
        groups.setdefault(each.task, []).extend(to_sequences(each))
    return list(groups.values())


def to_sequences(example: Example) -> list[TrainSequence]:
    """One sequence a segment, each token with the weight 1."""
    import numpy as np

    from patchgym.trainer.batching import TrainSequence

    return [
        TrainSequence(
            tokens=np.asarray(each.tokens, np.int32),
            loss_mask=np.asarray(each.loss_mask, np.bool_),
            # No sampler is compared with; equal values let equal beginnings share their place.
            sampler_logprobs=np.zeros(len(each.tokens), np.float32),
            advantage=1.0,
            first=number == 0,
        )
        for number, each in enumerate(example.sequences)
    ]
