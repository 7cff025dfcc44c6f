"""The sampler with the real weights: it speaks sense, and the learner's decoder agrees."""

from __future__ import annotations

from pathlib import Path

import anyio
import numpy as np
import pytest
from tiny_model import expected_logprobs

from patchgym.agent.policy import Completion, SampleRequest
from patchgym.trainer.model import load_model
from patchgym.trainer.sampler import JaxSampler
from patchgym.trainer.sampler_config import Dtype, SamplerConfig


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "mean", "most"), [("float32", 1e-4, 1e-3), ("bfloat16", 0.05, 0.5)]
)
async def test_the_real_model_speaks_sense_and_agrees_with_the_learner(
    weights: Path, dtype: Dtype, mean: float, most: float
) -> None:
    config, params, tokenizer = load_model(weights)
    question = "What is the capital of France? Answer in one sentence."
    prompt = tuple(tokenizer.encode_chat([{"role": "user", "content": question}]))

    def ask(seed: int, tokens: tuple[int, ...], temperature: float = 1.0) -> SampleRequest:
        return SampleRequest(
            rollout_id=str(seed),
            tokens=tokens,
            max_new_tokens=16,
            seed=seed,
            temperature=temperature,
        )

    completions: dict[int, Completion] = {}
    settings = SamplerConfig(slots=4, dtype=dtype)
    async with JaxSampler(settings, config, params, tokenizer) as sampler:
        greedy = await sampler.sample(ask(0, prompt, temperature=0.0))

        async def one(seed: int) -> None:
            completions[seed] = await sampler.sample(ask(seed, prompt))

        async with anyio.create_task_group() as group:
            for seed in range(4):
                group.start_soon(one, seed)
        more = tokenizer.encode("\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n")
        second = ask(9, (*prompt, *completions[0].tokens, *more))
        answer = await sampler.sample(second)
        counts = sampler.statistics()
    assert "Paris" in tokenizer.decode(greedy.tokens)
    assert counts.cached_tokens >= 4 * (len(prompt) - 1)
    pairs = [(ask(seed, prompt), completions[seed]) for seed in completions]
    apart = np.concatenate([
        expected_logprobs(config, params, request, completion) - np.asarray(completion.logprobs)
        for request, completion in [*pairs, (second, answer)]
    ])  # fmt: skip
    assert np.abs(apart).mean() < mean and np.abs(apart).max() < most
