"""Weights on their way out: names, files, folders, agreement, the embedded sampler as a sink."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_model import TINY, byte_tokenizer

from patchgym.agent import CharacterTokenizer, ScriptedPolicy
from patchgym.agent.policies import VllmServer, WeightPushError
from patchgym.agent.policies.check import Subject, check_policy
from patchgym.agent.policies.conformance_server import ConformanceServer
from patchgym.agent.policies.tensor_files import difference, file_shapes, folder_shapes
from patchgym.agent.policy import Completion, SampleRequest, VersionSpan
from patchgym.trainer.model import ModelConfig, load_model
from patchgym.trainer.model.assemble import assemble
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.sampler import JaxSampler
from patchgym.trainer.sampler_config import SamplerConfig
from patchgym.trainer.weights import (
    Agreement,
    AgreementError,
    ServerWeights,
    WeightSink,
    compare_logprobs,
    export_folder,
    learner_logprobs_of,
    probe,
)
from patchgym.trainer.weights.agreement import FLOAT32_LIMIT
from patchgym.trainer.weights.files import remove_versions, version_file, write_weights
from patchgym.trainer.weights.names import hugging_face_shapes, hugging_face_tensors
from patchgym.trainer.weights.sinks import _own_folder

UNTIED = replace(TINY, tied=False)


def same(one: Params, other: Params) -> bool:
    """Whether two trees of weights are equal bit for bit."""
    equal = jax.tree.map(lambda a, b: a.dtype == b.dtype and np.array_equal(a, b), one, other)
    return all(jax.tree.leaves(equal))


@pytest.mark.parametrize("config", [TINY, UNTIED])
def test_names_turn_assemble_around_bit_for_bit(config: ModelConfig) -> None:
    params = init_params(config, 1)
    tensors = {name: np.asarray(array) for name, array in hugging_face_tensors(config, params)}
    assert {name: array.shape for name, array in tensors.items()} == hugging_face_shapes(config)
    assert same(assemble(config, tensors.__getitem__, Path("here")), params)


def test_weights_without_a_name_are_refused() -> None:
    params = init_params(TINY, 1)
    params["layers"]["query_bias"] = jnp.zeros((2, 32))
    with pytest.raises(ValueError, match="query_bias"):
        list(hugging_face_tensors(TINY, params))


@pytest.mark.parametrize("config", [TINY, UNTIED])
def test_an_exported_folder_is_the_same_model(config: ModelConfig, tmp_path: Path) -> None:
    params, tokenizer = init_params(config, 2), byte_tokenizer()
    export_folder(config, params, tokenizer, tmp_path / "new" / "model")
    loaded, weights, read = load_model(tmp_path / "new" / "model")
    assert loaded == config and same(weights, params)
    text = "héllo <|im_start|>in<|im_end|>"
    assert read.encode(text) == tokenizer.encode(text)
    assert (read.end_of_turn, read.end_ids) == (tokenizer.end_of_turn, tokenizer.end_ids)
    chat = [{"role": "user", "content": "hi"}]
    assert read.encode_chat(chat) == tokenizer.encode_chat(chat)


def test_bfloat16_rounds_to_the_nearest(tmp_path: Path) -> None:
    params = init_params(TINY, 2)
    write_weights(TINY, params, tmp_path / "w.safetensors", precision="bfloat16")
    export_folder(TINY, params, byte_tokenizer(), tmp_path / "m", precision="bfloat16")
    _, weights, _ = load_model(tmp_path / "m")
    rounded = jax.tree.map(lambda a: a.astype(jnp.bfloat16).astype(jnp.float32), params)
    assert same(weights, rounded)


def test_a_file_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = version_file(tmp_path, 7)
    with pytest.raises(ValueError, match="not the weights of the model"):
        write_weights(UNTIED, init_params(replace(UNTIED, ffn=16), 0), file)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("safetensors.numpy.save_file", fail)
        with pytest.raises(OSError, match="full"):
            write_weights(TINY, init_params(TINY, 0), file)
    assert not list(tmp_path.iterdir())
    write_weights(TINY, init_params(TINY, 0), file)
    assert [path.name for path in tmp_path.iterdir()] == ["policy-00000007.safetensors"]
    assert file.stat().st_mode & 0o044 == 0o044


def test_old_versions_are_removed(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        version_file(tmp_path, version).touch()
    (tmp_path / ".policy-00000004.safetensors.99").touch()
    (tmp_path / "mine.safetensors").touch()
    remove_versions(tmp_path, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.safetensors",
        "policy-00000003.safetensors",
    ]


def test_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    mine = _own_folder(tmp_path)
    prefix = mine.name.rpartition("-")[0].rpartition("-")[0]
    stale = tmp_path / f"{prefix}-999999999-abc"
    elsewhere = tmp_path / "patchgym-weights-another+machine-999999999-abc"
    stale.mkdir()
    elsewhere.mkdir()
    again = _own_folder(tmp_path)
    assert mine.exists() and again.exists() and elsewhere.exists() and not stale.exists()
    assert str(os.getpid()) in mine.name


def test_shapes_are_read_from_headers_and_damage_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    write_weights(TINY, init_params(TINY, 0), file)
    shapes = file_shapes(file)
    assert shapes == hugging_face_shapes(TINY) == folder_shapes(tmp_path)
    assert difference(shapes, shapes) == ""
    less = {name: shape for name, shape in shapes.items() if name != "model.norm.weight"}
    assert "1 tensors are missing, model.norm.weight" in difference(shapes, less)
    assert "1 tensors are unknown" in difference(less, shapes)
    assert "has shape (3,)" in difference(shapes, shapes | {"model.norm.weight": (3,)})
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut short"):
        file_shapes(file)
    file.write_bytes(b"\xff" * 40)
    with pytest.raises(ValueError, match="not a safetensors file"):
        file_shapes(file)


def test_agreement_measures_and_raises_the_alarm() -> None:
    found = compare_logprobs([[-1.0, -2.0], [-3.0, 0.0]], [[-1.0, -2.5], [-3.0, 9.0]])
    assert found == Agreement(tokens=4, mean=2.375, maximum=9.0)
    masked = compare_logprobs([-1.0, -2.0, 5.0], [-1.0, -2.5, 0.0], [True, True, False])
    assert masked == Agreement(tokens=2, mean=0.25, maximum=0.5)
    assert masked.check(mean=0.25, maximum=0.5) is masked
    with pytest.raises(AgreementError, match=r"differ by 0.5 nats \(largest of 2 tokens\)"):
        masked.check(maximum=0.4)
    assert "mean" in (masked.alarm(mean=0.1) or "")
    assert compare_logprobs([], []).alarm(mean=0.0, maximum=0.0) is None
    assert compare_logprobs([float("nan")], [-1.0]).alarm(maximum=1e9) is not None
    with pytest.raises(ValueError, match="can't be compared"):
        compare_logprobs([1.0], [1.0, 2.0])


async def test_the_embedded_sampler_is_a_sink_and_the_probe_knows_its_weights() -> None:
    params, tokenizer = init_params(TINY, 3), byte_tokenizer()
    changed = init_params(TINY, 4)
    context = tuple(tokenizer.encode("some words in a row"))
    async with JaxSampler(SamplerConfig(slots=4), TINY, params, tokenizer) as sampler:
        sink: WeightSink = sampler
        (await probe(sampler, TINY, params, context)).check(maximum=FLOAT32_LIMIT)
        await sink.publish(changed, 1)
        (await probe(sampler, TINY, changed, context)).check(maximum=FLOAT32_LIMIT)
        with pytest.raises(AgreementError, match="don't run the same weights"):
            (await probe(sampler, TINY, params, context)).check(maximum=FLOAT32_LIMIT)


async def test_a_probe_across_a_push_says_nothing() -> None:
    class Mixed:
        version = 2

        async def sample(self, request: SampleRequest) -> Completion:
            await anyio.lowlevel.checkpoint()
            spans = (
                VersionSpan(policy_version=1, tokens=1),
                VersionSpan(policy_version=2, tokens=1),
            )
            return Completion(
                tokens=(1, 2), logprobs=(0.0, 0.0), policy_version=1, finish="length", spans=spans
            )

        def load(self) -> None:
            raise NotImplementedError

    with pytest.raises(AgreementError, match="probe again"):
        await probe(Mixed(), TINY, init_params(TINY, 0), (1,))  # type: ignore[arg-type]


def test_a_certain_choice_has_logprob_zero_on_both_sides() -> None:
    request = SampleRequest(rollout_id="r", tokens=(1,), max_new_tokens=2, temperature=0.0)
    completion = Completion(tokens=(1, 2), logprobs=(0.0, 0.0), policy_version=0, finish="length")
    assert not learner_logprobs_of(TINY, init_params(TINY, 0), request, completion).any()


async def test_publishing_to_nobody_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no server"):
        ServerWeights([], TINY, tmp_path)


def taking(taken: list[str], refusal: str = "") -> ConformanceServer:
    """A server that takes weights, or says `refusal` to a file; the files go to `taken`."""
    script = ScriptedPolicy(CharacterTokenizer(), lambda text, seed: "x")

    async def answer(body: Any) -> tuple[int, Any]:
        await anyio.lowlevel.checkpoint()
        if body and "args" in body:
            return 200, {"results": [refusal]}
        if body and "update_info" in body:
            taken.append(body["update_info"]["path"])
        if body and "weight_version" in body:
            script.version = int(body["weight_version"])
        return 200, {}

    stages = ("pause", "start_weight_update", "update_weights", "finish_weight_update", "resume")
    names = ("collective_rpc", "reset_prefix_cache", *stages)
    return ConformanceServer(script, routes={f"/{name}": answer for name in names})


async def test_a_server_that_takes_no_weights_does_not_hold_up_the_others(tmp_path: Path) -> None:
    params, taken = init_params(TINY, 0), list[str]()
    good, bad = taking(taken), taking(taken, "3 tensors are missing")
    async with good, bad, VllmServer(good.url) as first, VllmServer(bad.url) as second:
        async with ServerWeights([first, second], TINY, tmp_path) as sink:
            for version in (8, 9):
                await sink.publish(params, version)
                assert list(sink.failed) == [bad.url]
                assert "don't fit: 3 tensors are missing" in sink.failed[bad.url]
            assert (first.version, second.version) == (9, 0)
            with pytest.raises(ValueError, match="not newer than 9"):
                await sink.publish(params, 9)
            assert file_shapes(Path(taken[-1])) == hugging_face_shapes(TINY)
            with pytest.raises(FileNotFoundError):  # only the newest is kept
                file_shapes(Path(taken[0]))
        async with ServerWeights([second], TINY, tmp_path) as sink:
            with pytest.raises(WeightPushError, match="3 tensors are missing"):
                await sink.publish(params, 3)
        with pytest.raises(WeightPushError, match="not open"):
            await sink.publish(params, 4)


async def test_a_run_that_resumes_may_be_older_than_the_servers(tmp_path: Path) -> None:
    """It was killed after its last checkpoint; the servers lived on with newer weights."""
    params, taken = init_params(TINY, 0), list[str]()
    async with taking(taken) as server:
        async with VllmServer(server.url) as policy:
            async with ServerWeights([policy], TINY, tmp_path) as sink:
                await sink.publish(params, 57)
        async with VllmServer(server.url) as policy:
            assert policy.version == 57
            async with ServerWeights([policy], TINY, tmp_path) as sink:
                await sink.publish(params, 50)
                assert policy.version == 50
                with pytest.raises(ValueError, match="not newer than 50"):
                    await sink.publish(params, 50)


@pytest.mark.model
@pytest.mark.slow
async def test_the_embedded_sampler_keeps_every_promise(weights: Path) -> None:
    config, params, tokenizer = load_model(weights)

    def text_of(tokens: Sequence[int]) -> str:
        return tokenizer.decode(tokens)

    async with JaxSampler(
        SamplerConfig(slots=8, context=768), config, params, tokenizer
    ) as sampler:
        context = tokenizer.encode_chat([{"role": "user", "content": "Tell me about the sea."}])
        await check_policy(
            Subject(
                policy=sampler,
                context=tuple(context),
                vocabulary=config.vocabulary,
                decode=text_of,
                window=768,
            )
        )


@pytest.mark.model
def test_the_real_weights_come_back_bit_for_bit(weights: Path, tmp_path: Path) -> None:
    config, params, tokenizer = load_model(weights)
    export_folder(config, params, tokenizer, tmp_path)
    loaded, read, _ = load_model(tmp_path)
    assert loaded == config and same(read, params)
