"""The trajectories of the benchmark: multi-turn groups with a shared prompt, and their file.

A group is a prompt and `SIZE` members. A member has one to three turns; each is sampled tokens and,
but for the last, an observation, which is not trained on. Prompt, turns and observations have
lognormal lengths. Id 0 stands for padding elsewhere and is never drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from patchgym.trainer.batching import TrainSequence

SIZE = 8
TURNS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Medians in tokens, and the spread of their logarithm."""

    prompt: int = 112
    turn: int = 32
    observation: int = 48
    sigma: float = 0.5
    """Standard deviation of the log of each length, which is cut at four medians."""


def make_groups(
    count: int, vocabulary: int, lengths: Lengths, seed: int
) -> list[list[TrainSequence]]:
    """`count` groups of `SIZE`; the same seed gives the same groups."""
    rng = np.random.default_rng(seed)
    return [_group(rng, vocabulary, lengths) for _ in range(count)]


def _group(rng: np.random.Generator, vocabulary: int, lengths: Lengths) -> list[TrainSequence]:
    prompt = _ids(rng, vocabulary, _length(rng, lengths.prompt, lengths.sigma))
    rewards = rng.normal(size=SIZE)
    advantages = rewards - rewards.mean()
    return [_member(rng, vocabulary, lengths, prompt, float(each)) for each in advantages]


def _member(
    rng: np.random.Generator,
    vocabulary: int,
    lengths: Lengths,
    prompt: npt.NDArray[np.int32],
    advantage: float,
) -> TrainSequence:
    parts, sampled = [prompt], [False]
    turns = int(rng.integers(1, TURNS + 1))
    for turn in range(turns):
        parts.append(_ids(rng, vocabulary, _length(rng, lengths.turn, lengths.sigma)))
        sampled.append(True)
        if turn < turns - 1:
            parts.append(_ids(rng, vocabulary, _length(rng, lengths.observation, lengths.sigma)))
            sampled.append(False)
    mask = np.repeat(sampled, [len(part) for part in parts])
    # About what random weights say, so that some ratios are clipped and most are not.
    logprobs = -np.log(vocabulary) - 0.5 + 0.1 * rng.normal(size=len(mask))
    return TrainSequence(
        tokens=np.concatenate(parts),
        loss_mask=mask,
        sampler_logprobs=np.where(mask, logprobs, 0.0).astype(np.float32),
        advantage=advantage,
    )


def _length(rng: np.random.Generator, median: int, sigma: float) -> int:
    return int(np.clip(rng.lognormal(np.log(median), sigma), 4, 4 * median))


def _ids(rng: np.random.Generator, vocabulary: int, count: int) -> npt.NDArray[np.int32]:
    return rng.integers(1, vocabulary, count).astype(np.int32)


def prompt_length(sequence: TrainSequence) -> int:
    """Tokens before the first sampled one."""
    return int(np.argmax(sequence.loss_mask))


def longest_completion(groups: Sequence[Sequence[TrainSequence]]) -> int:
    """Tokens after the prompt of the longest of all members."""
    return max(len(s.tokens) - prompt_length(s) for group in groups for s in group)


def write_groups(groups: Sequence[Sequence[TrainSequence]], path: Path) -> None:
    """One flat file that needs nothing of ours to be read: `tokens`, `loss_mask` and
    `sampler_logprobs` [all tokens]; `lengths`, `prompts`, `advantages` and `group` [members]."""
    members = [sequence for group in groups for sequence in group]
    np.savez(
        path,
        tokens=np.concatenate([s.tokens for s in members]),
        loss_mask=np.concatenate([s.loss_mask for s in members]),
        sampler_logprobs=np.concatenate([s.sampler_logprobs for s in members]),
        lengths=np.asarray([len(s.tokens) for s in members]),
        prompts=np.asarray([prompt_length(s) for s in members]),
        advantages=np.asarray([s.advantage for s in members], np.float32),
        group=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
    )


def read_groups(path: Path) -> list[list[TrainSequence]]:
    """What `write_groups` wrote."""
    with np.load(path) as stored:
        held = {name: stored[name] for name in stored.files}
    ends = np.cumsum(held["lengths"])
    groups: list[list[TrainSequence]] = [[] for _ in range(int(held["group"].max()) + 1)]
    for index, end in enumerate(ends):
        here = slice(end - held["lengths"][index], end)
        groups[held["group"][index]].append(
            TrainSequence(
                tokens=held["tokens"][here],
                loss_mask=held["loss_mask"][here],
                sampler_logprobs=held["sampler_logprobs"][here],
                advantage=float(held["advantages"][index]),
            )
        )
    return groups
