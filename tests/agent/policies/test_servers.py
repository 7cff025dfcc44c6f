"""The clients of servers against the conformance server: promises, faults, cancellation, death."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import anyio
import pytest

from patchgym.agent import CharacterTokenizer, ScriptedPolicy
from patchgym.agent.policies import (
    ContextTooLong,
    PolicyAnswerError,
    PolicyClosed,
    PolicyError,
    PolicyRefused,
    PolicyTimeout,
    PolicyUnavailable,
    SglangServer,
    VllmServer,
    WeightPushError,
)
from patchgym.agent.policies.check import Subject, check_policy
from patchgym.agent.policies.conformance_server import ConformanceServer, Fault, Handler
from patchgym.agent.policies.errors import one_line
from patchgym.agent.policies.metrics_text import load_of
from patchgym.agent.policy import Completion, Finish, PolicyLoad, SampleRequest, VersionSpan

Client: TypeAlias = type[VllmServer] | type[SglangServer]

CLIENTS: tuple[Client, ...] = (VllmServer, SglangServer)
TOKENIZER = CharacterTokenizer()


class Dice:
    """Letters drawn by the seed, one every millisecond, with stop texts and honest logprobs."""

    def __init__(self) -> None:
        self.version = 3
        self.running = 0
        self.spans: tuple[VersionSpan, ...] = ()

    async def sample(self, request: SampleRequest) -> Completion:
        if not request.tokens or request.max_new_tokens < 1:
            raise ValueError("nonsense")
        draw = random.Random(request.seed if request.temperature else 0)
        text, finish = "", "length"
        self.running += 1
        try:
            while len(text) < request.max_new_tokens:
                await anyio.sleep(0.001)
                text += draw.choice("abcdefgh")
                if any(text.endswith(stop) for stop in request.stop):
                    finish = "stop"
                    break
        finally:
            self.running -= 1
        logprob = -2.0794415 if request.temperature else 0.0
        return Completion(
            tokens=tuple(TOKENIZER.encode(text)),
            logprobs=(logprob,) * len(text),
            policy_version=self.version,
            finish=_finish(finish),
            spans=self.spans,
        )

    def load(self) -> PolicyLoad:
        return PolicyLoad(running=self.running)


def _finish(name: str) -> Finish:
    return "stop" if name == "stop" else "length"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def server() -> AsyncIterator[ConformanceServer]:
    async with ConformanceServer(Dice(), window=600) as running:
        yield running


def ask(*, seed: int = 0, new: int = 8) -> SampleRequest:
    return SampleRequest(
        rollout_id="r", tokens=tuple(TOKENIZER.encode("hello")), max_new_tokens=new, seed=seed
    )


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_keeps_every_promise(client: Client, server: ConformanceServer) -> None:
    async with client(server.url, poll_seconds=0.02) as policy:
        subject = Subject(
            policy=policy,
            context=tuple(TOKENIZER.encode("hello")),
            vocabulary=1 << 17,
            decode=TOKENIZER.decode,
            window=600,
        )
        assert policy.window == 600 and policy.version == 3
        await check_policy(subject)


FAULTS: tuple[tuple[Fault, type[PolicyError], str], ...] = (
    ("garbage", PolicyAnswerError, "is not JSON; it begins '<html>502"),
    ("empty", PolicyAnswerError, "no token at all"),
    ("short_logprobs", PolicyAnswerError, "8 tokens and 7 log-probabilities"),
    ("no_logprob", PolicyAnswerError, "log-probability of a sampled token is missing"),
    ("cut", PolicyUnavailable, "connection broke before the answer was complete"),
    ("refuse", PolicyRefused, "status 400: as told"),
    ("busy", PolicyUnavailable, "status 503: as told"),
    ("hang", PolicyTimeout, "no answer in 0.3 s"),
)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("fault", "kind", "words"), FAULTS)
async def test_each_fault_is_one_typed_error_in_one_line(
    client: Client, fault: Fault, kind: type[PolicyError], words: str, server: ConformanceServer
) -> None:
    limit = 0.3 if fault == "hang" else 30.0
    async with client(server.url, turn_limit=limit) as policy:
        server.fault = fault
        with pytest.raises(kind) as caught:
            await policy.sample(ask())
        assert words in str(caught.value) and server.url in str(caught.value)
        assert "\n" not in str(caught.value)
        server.fault = "none"
        assert len((await policy.sample(ask())).tokens) == 8


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_servers_own_refusal_of_a_long_context(
    client: Client, server: ConformanceServer
) -> None:
    async with client(server.url) as policy:
        policy._window = None
        with pytest.raises(ContextTooLong, match="maximum context length is 600"):
            await policy.sample(ask(new=700))


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_server_that_dies_in_the_middle_is_named(client: Client) -> None:
    errors = list[BaseException]()

    async def one(policy: VllmServer | SglangServer) -> None:
        try:
            await policy.sample(ask(new=500))
        except PolicyUnavailable as error:
            errors.append(error)

    async with ConformanceServer(Dice()) as server, client(server.url) as policy:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(one, policy)
            await anyio.sleep(0.1)
            await server.die()
        assert len(errors) == 3 and all(server.url in str(error) for error in errors)
        with pytest.raises(PolicyUnavailable, match="can't be reached"):
            await policy.sample(ask())
        with pytest.raises(PolicyUnavailable):
            await policy.check_health()


@pytest.mark.parametrize("client", CLIENTS)
async def test_cancelling_one_turn_leaves_the_others(
    client: Client, server: ConformanceServer
) -> None:
    """SGLang aborts every turn whose name begins with the one given: names are of one length."""
    lengths = list[int]()

    async def keep(policy: VllmServer | SglangServer, seed: int) -> None:
        lengths.append(len((await policy.sample(ask(seed=seed, new=300))).tokens))

    async with client(server.url) as policy:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as cancelled:
                    cancelled.start_soon(keep, policy, 99)
                    await anyio.sleep(0.05)
                    for seed in range(12):
                        group.start_soon(keep, policy, seed)
                    await anyio.sleep(0.1)
                    scope.cancel()
        assert lengths == [300] * 12
        assert server.aborted == 1


async def test_versions_of_each_token_come_through(server: ConformanceServer) -> None:
    dice = server._policy
    assert isinstance(dice, Dice)
    dice.spans = (
        VersionSpan(policy_version=3, tokens=5),
        VersionSpan(policy_version=4, tokens=3),
    )
    async with VllmServer(server.url, poll_seconds=0.02) as policy:
        completion = await policy.sample(ask())
        assert completion.versions() == (3,) * 5 + (4,) * 3
        assert completion.policy_version == 3 and policy.version == 3
        dice.version = 4  # somebody else's push
        with anyio.fail_after(5):
            while policy.version != 4:  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def test_sglang_names_one_version_a_turn_so_the_older_counts(
    server: ConformanceServer,
) -> None:
    dice = server._policy
    assert isinstance(dice, Dice)
    async with SglangServer(server.url) as policy:
        dice.version = 5  # pushed while the turn runs: the answer will say 5
        completion = await policy.sample(ask())
        assert completion.policy_version == 3 and policy.version == 5
        assert (await policy.sample(ask())).policy_version == 5


@pytest.mark.parametrize("client", CLIENTS)
async def test_closing_tells_the_turns_that_wait(client: Client, server: ConformanceServer) -> None:
    errors = list[BaseException]()

    async def one(policy: VllmServer | SglangServer) -> None:
        with pytest.raises(PolicyClosed, match="was closed") as caught:
            await policy.sample(ask(new=500))
        errors.append(caught.value)

    policy = client(server.url)
    with pytest.raises(PolicyClosed, match="not open"):
        await policy.sample(ask())
    async with anyio.create_task_group() as group:
        async with policy:
            group.start_soon(one, policy)
            await anyio.sleep(0.1)
    assert len(errors) == 1


async def test_nobody_there_is_said_when_it_opens() -> None:
    with pytest.raises(PolicyUnavailable, match="http://127.0.0.1:1/.*can't be reached"):
        async with VllmServer("http://127.0.0.1:1"):
            raise AssertionError("it opened")


async def test_a_key_that_is_not_there_is_named_by_its_variable() -> None:
    with pytest.raises(PolicyRefused, match="NO_SUCH_KEY_HERE"):
        VllmServer("http://127.0.0.1:1", api_key_variable="NO_SUCH_KEY_HERE")


async def test_a_server_that_takes_no_weights_says_what_it_lacks(
    server: ConformanceServer,
) -> None:
    async with VllmServer(server.url) as policy:
        with pytest.raises(WeightPushError, match="stage 'check'.*status 404.*DEV_MODE=1"):
            await policy.push("/weights.safetensors", 9)
        with pytest.raises(ValueError, match="not a full path"):
            await policy.push("weights.safetensors", 9)
        assert policy.version == 3 and (await policy.sample(ask())).policy_version == 3


async def test_an_update_that_breaks_in_the_middle_ends_every_turn() -> None:
    """The weights are in doubt, so nothing is sampled with them; the server was left paused."""
    calls, told = list[str](), list[str]()

    def stage(name: str, status: int, answer: Any) -> tuple[str, Handler]:
        async def called(body: Any) -> tuple[int, Any]:
            await anyio.lowlevel.checkpoint()
            calls.append(name)
            return status, answer

        return f"/{name}", called

    routes = dict(
        [
            stage("collective_rpc", 200, {"results": [""]}),
            stage("pause", 200, {}),
            stage("start_weight_update", 200, {}),
            stage("update_weights", 500, {"error": "the engine died"}),
        ]
    )

    async def one(policy: VllmServer) -> None:
        with pytest.raises(PolicyUnavailable, match="stage 'load'.*the engine died") as caught:
            await policy.sample(ask(new=2000))
        told.append(str(caught.value))

    async with ConformanceServer(Dice(), routes=routes) as server, VllmServer(server.url) as policy:
        async with anyio.create_task_group() as group:
            group.start_soon(one, policy)
            await anyio.sleep(0.1)
            with pytest.raises(WeightPushError, match="stage 'load'.*the engine died"):
                await policy.push("/weights.safetensors", 9)
        assert calls == ["collective_rpc", "pause", "start_weight_update", "update_weights"]
        assert len(told) == 1 and policy.version == 3
        with pytest.raises(PolicyUnavailable, match="the engine died"):
            await policy.check_health()


async def test_the_scripted_policy_keeps_what_needs_no_model() -> None:
    policy = ScriptedPolicy(TOKENIZER, lambda text, seed: "a scripted answer")
    subject = Subject(
        policy=policy,
        context=tuple(TOKENIZER.encode("hello")),
        vocabulary=1 << 17,
        decode=TOKENIZER.decode,
        draws=False,
        stops=False,
        slow=False,
        refuses=False,
    )
    await check_policy(subject)


def test_load_is_read_from_either_servers_page() -> None:
    page = """# HELP vllm:num_requests_running Number of requests
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 2.0
vllm:num_requests_waiting{engine="0"} 4.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:num_preemptions_total{engine="0"} 7.0
vllm:num_preemptions_created{engine="0"} 1.7e9
broken line
"""
    assert load_of(page) == PolicyLoad(running=5, waiting=4, cache_use=0.5, preemptions=7)
    page = "sglang:num_running_reqs 2\nsglang:num_queue_reqs 1\nsglang:token_usage NaN\n"
    assert load_of(page).running == 2 and load_of(page).waiting == 1
    assert load_of("") == PolicyLoad()


def test_one_line_is_one_line() -> None:
    assert one_line("a\n  b\t c") == "a b c"
    assert len(one_line("x" * 999)) == 300
