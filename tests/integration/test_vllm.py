"""A real vLLM server on CPU: ids in and out, weights pushed into it, and what happens when it dies.

One server for the module, in float32 on the real weights; .venv-vllm is made when it is missing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import jax
import numpy as np
import pytest

from patchgym.agent.policies import (
    ContextTooLong,
    OpenAIEndpoint,
    PolicyRouter,
    PolicyUnavailable,
    VllmServer,
    WeightPushError,
    check,
)
from patchgym.agent.policy import Completion, SampleRequest
from patchgym.trainer.model import ModelConfig, Tokenizer, load_model
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.weights import (
    ServerWeights,
    compare_logprobs,
    export_folder,
    learner_logprobs_of,
    probe,
)
from patchgym.trainer.weights.agreement import FLOAT32_LIMIT
from patchgym.trainer.weights.files import write_weights
from vllm_serving import WINDOW, serving

pytestmark = [pytest.mark.model, pytest.mark.slow]


@dataclass(frozen=True)
class Model:
    config: ModelConfig
    params: Params
    tokenizer: Tokenizer
    folder: Path

    def chat(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode_chat([{"role": "user", "content": text}]))


@pytest.fixture(scope="module")
def model(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    config, params, tokenizer = load_model(weights)
    folder = tmp_path_factory.mktemp("model")
    export_folder(config, params, tokenizer, folder)
    return Model(config, params, tokenizer, folder)


@pytest.fixture(scope="module")
def server(
    vllm_python: Path, model: Model, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(vllm_python, model.folder, log) as (url, _):
        yield url


@pytest.fixture
async def policy(server: str, model: Model) -> AsyncIterator[VllmServer]:
    async with VllmServer(server, end_ids=sorted(model.tokenizer.end_ids)) as opened:
        yield opened


def ask(
    tokens: tuple[int, ...], *, seed: int = 0, new: int = 24, temperature: float = 1.0,
    stop: tuple[str, ...] = (),
) -> SampleRequest:  # fmt: skip
    return SampleRequest(
        rollout_id=f"r{seed}", tokens=tokens, max_new_tokens=new, seed=seed, stop=stop,
        temperature=temperature,
    )  # fmt: skip


def files_below(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def nudged(params: Params, factor: float) -> Params:
    """Weights that a training step could have given: each array scaled."""
    changed: Params = jax.tree.map(lambda array: array * factor, params)
    return changed


async def test_logprobs_are_those_of_our_own_decoder(policy: VllmServer, model: Model) -> None:
    context = model.chat("Write a Python function that adds two numbers.")
    for temperature in (1.0, 0.7):
        request = ask(context, seed=3, temperature=temperature)
        completion = await policy.sample(request)
        expected = learner_logprobs_of(model.config, model.params, request, completion)
        compare_logprobs(completion.logprobs, expected).check(maximum=FLOAT32_LIMIT)
    greedy = await policy.sample(ask(model.chat("What is the capital of France?"), temperature=0))
    assert "Paris" in model.tokenizer.decode(greedy.tokens)
    assert set(greedy.logprobs) == {0.0}


def subject(policy: VllmServer, model: Model) -> check.Subject:
    return check.Subject(
        policy=policy,
        context=model.chat("Tell me about the sea."),
        vocabulary=model.config.vocabulary,
        decode=model.tokenizer.decode,
        window=WINDOW,
    )


async def test_it_keeps_every_promise(policy: VllmServer, model: Model) -> None:
    assert policy.window == WINDOW and policy.version == 0
    await check.check_policy(subject(policy, model))


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_it_works_under_trio(policy: VllmServer, model: Model) -> None:
    await check.check_shape(subject(policy, model))
    await check.check_cancellation(subject(policy, model))


async def test_the_servers_own_words_on_a_long_context_are_understood(
    policy: VllmServer, model: Model
) -> None:
    """Past our own check, which knows the window."""
    policy._window = None
    long = (model.chat("Tell me about the sea.") * 99)[: WINDOW + 5]
    with pytest.raises(ContextTooLong):
        await policy.sample(ask(long))


async def test_pushed_weights_are_used_from_the_next_token_on(
    policy: VllmServer, model: Model, tmp_path: Path
) -> None:
    """Each trap of a push is one where the logprobs would not be those of the new weights."""
    context = model.chat("Explain what a hash map is. " * 12)
    before = await policy.sample(ask(context, seed=1))
    assert before.policy_version == 0
    changed = nudged(model.params, 1.03)
    async with ServerWeights([policy], model.config, tmp_path) as sink:
        await sink.publish(changed, 1)
        assert policy.version == 1 and sink.failed == {}
        # The same context again: had its prefix stayed cached, its keys would be the old ones.
        request = ask(context, seed=1)
        after = await policy.sample(request)
        assert after.policy_version == 1
        expected = learner_logprobs_of(model.config, changed, request, after)
        compare_logprobs(after.logprobs, expected).check(maximum=FLOAT32_LIMIT)
        old = learner_logprobs_of(model.config, model.params, request, after)
        assert compare_logprobs(after.logprobs, old).maximum > 10 * FLOAT32_LIMIT
        assert after.logprobs != before.logprobs
        with pytest.raises(ValueError, match="not newer"):
            await sink.publish(changed, 1)
        await sink.publish(model.params, 2)
        found = await probe(policy, model.config, model.params, context)
        found.check(maximum=FLOAT32_LIMIT)
        assert files_below(tmp_path) == 1
    assert files_below(tmp_path) == 0


async def test_turns_in_flight_end_on_the_new_weights_and_say_which_token_is_whose(
    policy: VllmServer, model: Model, tmp_path: Path
) -> None:
    start = policy.version
    changed = nudged(model.params, 0.98)
    # Long turns: the ends of a turn are left out, so that none is over before the push.
    lasting = VllmServer(policy.url)
    requests = [ask(model.chat(f"Count to {n}."), seed=n, new=160) for n in range(6)]
    answers: dict[int, tuple[SampleRequest, Completion]] = {}

    async with lasting, ServerWeights([policy], model.config, tmp_path) as sink:

        async def one(request: SampleRequest) -> None:
            answers[request.seed] = request, await lasting.sample(request)

        async with anyio.create_task_group() as group:
            for request in requests:
                group.start_soon(one, request)
            with anyio.fail_after(60):
                while lasting.load().running < 3:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            await sink.publish(changed, start + 1)
        mixed = [(r, c) for r, c in answers.values() if len(c.spans) == 2]
        assert len(mixed) >= 2, [c.spans for _, c in answers.values()]
        for request, completion in mixed:
            assert [span.policy_version for span in completion.spans] == [start, start + 1]
            assert completion.policy_version == start
            versions = np.asarray(completion.versions())
            for version, params in ((start, model.params), (start + 1, changed)):
                expected = learner_logprobs_of(model.config, params, request, completion)
                compare_logprobs(completion.logprobs, expected, versions == version).check(
                    maximum=FLOAT32_LIMIT
                )
        await sink.publish(model.params, start + 2)


async def test_weights_that_do_not_fit_are_refused_and_the_server_lives_on(
    policy: VllmServer, model: Model, tmp_path: Path
) -> None:
    version = policy.version
    small = ModelConfig(vocabulary=300, width=32, layers=1, heads=4, kv_heads=2, head_dim=8, ffn=48)
    wrong, cut = tmp_path / "wrong.safetensors", tmp_path / "cut.safetensors"
    write_weights(small, init_params(small, 0), wrong)
    cut.write_bytes(wrong.read_bytes()[:-100])
    for file, words in ((wrong, "tensors are missing"), (cut, "cut short"), (tmp_path, "Error")):
        with pytest.raises(WeightPushError, match=words):
            await policy.push(file, version + 1)
    async with ServerWeights([policy], model.config, tmp_path) as sink:
        with pytest.raises(ValueError, match="not the weights of the model"):
            await sink.publish(init_params(small, 0), version + 1)
    assert policy.version == version
    found = await probe(policy, model.config, model.params, model.chat("Hello."))
    found.check(maximum=FLOAT32_LIMIT)


async def test_the_chat_endpoint_answers_in_text(server: str) -> None:
    async with OpenAIEndpoint(f"{server}/v1", "policy") as endpoint:
        question = [{"role": "user", "content": "What is the capital of France?"}]
        answer = await endpoint.chat(question, max_new_tokens=24, temperature=0, seed=1)
    assert "Paris" in answer.text
    assert answer.completion_tokens > 0 and answer.finish in ("stop", "length")


async def test_turns_of_a_server_that_is_killed_are_sampled_on_another_one(
    server: str, vllm_python: Path, model: Model, tmp_path: Path
) -> None:
    """Killed by SIGKILL in the middle of its tokens: a typed error, and the router asks again."""
    requests = [ask(model.chat(f"Count to {n}."), seed=n, new=200) for n in range(6)]
    said, answers, moved = list[str](), list[Completion](), 0

    async def alone(policy: VllmServer, seed: int) -> None:
        """One turn after the other, so that one is being sampled whenever the server is killed."""
        try:
            while True:
                await policy.sample(ask(model.chat("Count to 100."), seed=seed, new=300))
        except PolicyUnavailable as error:
            said.append(str(error))

    async def routed(router: PolicyRouter, request: SampleRequest) -> None:
        answers.append(await router.sample(request))

    with serving(vllm_python, model.folder, tmp_path / "log") as (url, process):
        async with VllmServer(url, poll_seconds=0.1) as doomed, VllmServer(server) as other:
            members = {"doomed": doomed, "other": other}
            async with PolicyRouter(members, slack=0, look_seconds=0.5) as router:
                async with anyio.create_task_group() as group:
                    for seed in range(3):
                        group.start_soon(alone, doomed, seed)
                    for request in requests:
                        group.start_soon(routed, router, request)
                    with anyio.fail_after(60):
                        while doomed.load().running < 3 or not moved:
                            await anyio.sleep(0.05)
                            moved = router.statistics()["doomed"].running
                    os.killpg(process.pid, signal.SIGKILL)
                statistics = router.statistics()
    assert len(said) == 3 and all(url in words and "\n" not in words for words in said)
    assert any("the connection broke before the answer was complete" in words for words in said)
    assert len(answers) == len(requests)
    assert not statistics["doomed"].up and moved >= 1
    assert statistics["doomed"].turns + statistics["other"].turns == len(requests)
