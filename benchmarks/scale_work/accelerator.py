"""What this machine takes as an accelerator: SmolLM2-135M, float32, sampled from and learned from.

A decoding step by how many turns share it, context read in a second, and an update of one group and
of two, which tells what a token costs from what a step costs.
"""

from __future__ import annotations

import time
from typing import Any

import anyio
import numpy as np
from learner_work.groups import Lengths, make_groups

from patchgym.agent import SampleRequest
from patchgym.datasets.cache import cache_dir
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model import ensure_weights, load_model
from patchgym.trainer.sampler import JaxSampler
from patchgym.trainer.sampler_config import SamplerConfig

SHORT = Lengths(prompt=64, turn=16, observation=16)
"""Of the sequences that are learned from: a step of two groups then takes some ten seconds."""
TURNS = (1, 8, 32)
PROMPT, NEW = 220, 32
"""Tokens of context of a turn, and sampled."""


def measure() -> dict[str, Any]:
    """Parameters of the model's sampler and learner."""
    loaded: Any = load_model(ensure_weights(cache_dir()))
    loaded[2].end_ids = frozenset()  # a turn is exactly as long as it was asked to be
    sampler = anyio.run(_sampler, loaded)
    return {"parameters": {"sampler": sampler, "learner": _learner(loaded)}}


async def _sampler(loaded: Any) -> dict[str, Any]:
    steps = [[turns, round(await _step_seconds(loaded, turns), 5)] for turns in TURNS]
    async with JaxSampler(_config(1, cache=0), *loaded) as sampler:
        await sampler.sample(_request(0, 1))
        before = sampler.statistics()
        for group in range(1, 5):
            await sampler.sample(_request(group, 1))
        after = sampler.statistics()
    seconds = after.busy_seconds["prefill"] - before.busy_seconds["prefill"]
    tokens = after.prefill_tokens - before.prefill_tokens
    return {"steps": steps, "turns": TURNS[-1], "prefill_rate": round(tokens / seconds, 1)}


async def _step_seconds(loaded: Any, turns: int) -> float:
    """Seconds of a decoding step with so many turns."""
    async with JaxSampler(_config(turns, cache=512), *loaded) as sampler:
        await _all(sampler, turns)  # compiles
        before = sampler.statistics()
        await _all(sampler, turns)
        after = sampler.statistics()
    seconds = after.busy_seconds["decode"] - before.busy_seconds["decode"]
    return float(turns * seconds / (after.sampled_tokens - before.sampled_tokens))


async def _all(sampler: JaxSampler, turns: int) -> None:
    async with anyio.create_task_group() as group:
        for seed in range(turns):
            group.start_soon(sampler.sample, _request(0, NEW, seed))


def _config(slots: int, cache: int) -> SamplerConfig:
    return SamplerConfig(slots=slots, context=1024, prefix_cache_mib=cache)


def _request(group: int, new: int, seed: int = 0) -> SampleRequest:
    prompt = np.random.default_rng(group).integers(100, 40_000, PROMPT)
    tokens = tuple(prompt.tolist())
    return SampleRequest(rollout_id=str(seed), tokens=tokens, max_new_tokens=new, seed=seed)


def _learner(loaded: Any) -> dict[str, float]:
    model, params, _ = loaded
    learner = Learner(LearnerConfig(), model, params)
    found = []
    for count in (1, 2):
        groups = make_groups(count, model.vocabulary, SHORT, seed=count)
        tokens = sum(len(each.tokens) for group in groups for each in group)
        learner.train(groups, should_stop=lambda: False)  # compiles
        started = time.perf_counter()
        learner.train(groups, should_stop=lambda: False)
        found.append((tokens, time.perf_counter() - started))
    (few, short), (many, long) = found
    token = max((long - short) / (many - few), 0.0)
    return {"seconds": round(max(short - token * few, 0.0), 3), "token_seconds": round(token, 6)}
