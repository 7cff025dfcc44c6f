"""Random groups whose sequences share prompts and turns, for the tiny decoder."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from tiny_model import TINY

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.decoder import init_params

Generator = np.random.Generator
Part = tuple[npt.NDArray[np.int32], bool, npt.NDArray[np.float32]]


def observed(rng: Generator, size: int) -> Part:
    """Tokens that the environment gave."""
    ids = rng.integers(1, TINY.vocabulary, size).astype(np.int32)
    return ids, False, np.zeros(size, np.float32)


def sampled(rng: Generator, size: int) -> Part:
    """Tokens that the policy gave, at about the log-probability of a random model."""
    ids = rng.integers(1, TINY.vocabulary, size).astype(np.int32)
    return ids, True, rng.normal(-np.log(TINY.vocabulary), 0.3, size).astype(np.float32)


def join(parts: list[Part], advantage: float) -> TrainSequence:
    """One sequence of `parts`."""
    return TrainSequence(
        tokens=np.concatenate([ids for ids, _, _ in parts]),
        loss_mask=np.concatenate([np.full(len(ids), mask) for ids, mask, _ in parts]),
        sampler_logprobs=np.concatenate([logprobs for _, _, logprobs in parts]),
        advantage=advantage,
    )


def forked_group(rng: Generator) -> list[TrainSequence]:
    """Four sequences: two share a first turn and its answer, one that turn, one the prompt."""
    prompt, turn, answer = observed(rng, 9), sampled(rng, 5), observed(rng, 4)
    return [
        join([prompt, turn, answer, sampled(rng, 6)], 1.2),
        join([prompt, turn, answer, sampled(rng, 3)], -0.7),
        join([prompt, turn, sampled(rng, 4)], 0.4),
        join([prompt, sampled(rng, 7)], -1.4),
    ]


def tiny_learner(seed: int = 0, **settings: object) -> Learner:
    """A learner of the tiny decoder; `settings` are LearnerConfig's."""
    config = LearnerConfig(**{"row_tokens": (32, 64), "length_normalizer": 8, **settings})  # type: ignore[arg-type]
    return Learner(config, TINY, init_params(TINY, seed))
