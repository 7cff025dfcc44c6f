"""vLLM in process, checked by a script: it runs in .venv-vllm, where the tests themselves don't.

Usage: python engine_checks.py MODEL_FOLDER. Prints one line of JSON, a result for each check, and
exits with 0 when all of them passed.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import jax
import numpy as np

from patchgym.agent.policies import PolicyClosed, PolicyUnavailable, VllmEngine
from patchgym.agent.policies.check import Subject, check_policy
from patchgym.agent.policy import Completion, SampleRequest
from patchgym.trainer.model import ModelConfig, Tokenizer, load_model
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.weights import (
    EngineWeights,
    compare_logprobs,
    learner_logprobs_of,
    probe,
)
from patchgym.trainer.weights.agreement import FLOAT32_LIMIT

WINDOW = 1024


@dataclass(frozen=True)
class Checks:
    """The checks, in their order; each gets what it needs from here."""

    engine: VllmEngine
    config: ModelConfig
    params: Params
    tokenizer: Tokenizer

    def chat(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode_chat([{"role": "user", "content": text}]))

    def ask(self, text: str, *, seed: int = 0, new: int = 24) -> SampleRequest:
        return SampleRequest(
            rollout_id=f"r{seed}", tokens=self.chat(text), max_new_tokens=new, seed=seed
        )

    def compare(self, request: SampleRequest, completion: Completion, params: Params) -> float:
        expected = learner_logprobs_of(self.config, params, request, completion)
        return compare_logprobs(completion.logprobs, expected).maximum

    async def promises(self) -> None:
        await check_policy(
            Subject(
                policy=self.engine,
                context=self.chat("Tell me about the sea."),
                vocabulary=self.config.vocabulary,
                decode=self.tokenizer.decode,
                window=WINDOW,
            )
        )

    async def agreement(self) -> None:
        for temperature in (1.0, 0.7):
            request = replace(self.ask("Add two numbers in Python."), temperature=temperature)
            completion = await self.engine.sample(request)
            assert completion.policy_version == 5
            assert self.compare(request, completion, self.params) < FLOAT32_LIMIT

    async def pushed_weights(self) -> None:
        """The same long context before and after: a stale prefix or a stale head would show."""
        text = "Explain what a hash map is. " * 12
        await self.engine.sample(self.ask(text))
        changed = jax.tree.map(lambda array: array * 1.03, self.params)
        sink = EngineWeights(self.engine, self.config)
        await sink.publish(changed, 6)
        request = self.ask(text)
        completion = await self.engine.sample(request)
        assert completion.policy_version == 6 == self.engine.version
        assert self.compare(request, completion, changed) < FLOAT32_LIMIT
        assert self.compare(request, completion, self.params) > 10 * FLOAT32_LIMIT
        await sink.publish(self.params, 7)
        found = await probe(self.engine, self.config, self.params, self.chat(text))
        found.check(maximum=FLOAT32_LIMIT)

    async def turns_in_flight(self) -> None:
        changed = jax.tree.map(lambda array: array * 0.98, self.params)
        requests = [self.ask(f"Count to {n}.", seed=n, new=160) for n in range(6)]
        answers: list[tuple[SampleRequest, Completion]] = []
        sink = EngineWeights(self.engine, self.config)

        async def one(request: SampleRequest) -> None:
            answers.append((request, await self.engine.sample(request)))

        async with anyio.create_task_group() as group:
            for request in requests:
                group.start_soon(one, request)
            while self.engine.load().running < 6:  # noqa: ASYNC110
                await anyio.sleep(0.02)
            await anyio.sleep(0.3)
            await sink.publish(changed, 8)
        mixed = [(r, c) for r, c in answers if len(c.spans) == 2]
        assert len(mixed) >= 2, [c.spans for _, c in answers]
        for request, completion in mixed:
            versions = np.asarray(completion.versions())
            assert sorted(set(versions)) == [7, 8] and completion.policy_version == 7
            for version, params in ((7, self.params), (8, changed)):
                expected = learner_logprobs_of(self.config, params, request, completion)
                found = compare_logprobs(completion.logprobs, expected, versions == version)
                found.check(maximum=FLOAT32_LIMIT)
        await sink.publish(self.params, 9)

    async def weights_that_do_not_fit(self) -> None:
        small = ModelConfig(
            vocabulary=300, width=32, layers=1, heads=4, kv_heads=2, head_dim=8, ffn=48
        )
        for config, version in ((small, 10), (self.config, 9)):
            params = init_params(small, 0) if config is small else self.params
            try:
                await EngineWeights(self.engine, config).publish(params, version)
            except ValueError as error:
                assert "don't fit" in str(error) or "not newer" in str(error), error
            else:
                raise AssertionError("weights that don't fit were taken")
        found = await probe(self.engine, self.config, self.params, self.chat("Hello."))
        found.check(maximum=FLOAT32_LIMIT)

    async def a_failure_is_told(self) -> None:
        """Last, since the engine does not survive it."""
        told = list[str]()

        async def one(seed: int) -> None:
            try:
                await self.engine.sample(self.ask("Count to 100.", seed=seed, new=200))
            except PolicyUnavailable as error:
                told.append(str(error))

        owner = self.engine._owner
        assert owner is not None

        def broken() -> Any:
            if len(owner._turns) < 3:
                return []
            raise RuntimeError("no more\nsteps")

        owner._engine.step = broken
        async with anyio.create_task_group() as group:
            for seed in range(3):
                group.start_soon(one, seed)
        assert len(told) == 3, told
        assert all("failed in 'sampling': RuntimeError: no more steps" in t for t in told), told
        try:
            await self.engine.check_health()
        except PolicyUnavailable:
            return
        raise AssertionError("a dead engine is called healthy")


NAMES = (
    "promises",
    "agreement",
    "pushed_weights",
    "turns_in_flight",
    "weights_that_do_not_fit",
    "a_failure_is_told",
)


async def main(folder: Path) -> dict[str, str]:
    """Result of each check: "passed", or what went wrong."""
    config, params, tokenizer = load_model(folder)
    options = {
        "dtype": "float32",
        "max_model_len": WINDOW,
        "enforce_eager": True,
        "max_num_seqs": 16,
        "block_size": 32,
        "kv_cache_memory_bytes": 256 << 20,
    }
    results: dict[str, str] = {}
    engine = VllmEngine(folder, version=5, end_ids=sorted(tokenizer.end_ids), options=options)
    async with engine:
        checks = Checks(engine, config, params, tokenizer)
        for name in NAMES:
            check: Callable[[], Awaitable[None]] = getattr(checks, name)
            results[name] = await _outcome(check)
    try:
        await engine.sample(checks.ask("Hello."))
        results["closed"] = "it answered"
    except (PolicyClosed, PolicyUnavailable):
        results["closed"] = "passed"
    return results


async def _outcome(check: Callable[[], Awaitable[None]]) -> str:
    try:
        await check()
    except Exception:  # the report's boundary: every failure is shown, whatever it is
        return traceback.format_exc()
    return "passed"


if __name__ == "__main__":
    said = anyio.run(main, Path(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(said) + "\n")
    sys.exit(any(result != "passed" for result in said.values()))
