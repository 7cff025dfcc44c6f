"""The router: where turns go, what happens to them when a member dies, drains or hangs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import anyio
import pytest

from patchgym.agent import CharacterTokenizer
from patchgym.agent.policies import PolicyRefused, PolicyRouter, PolicyTimeout, PolicyUnavailable
from patchgym.agent.policies.check import Subject, check_policy
from patchgym.agent.policies.conformance_server import ConformanceServer
from patchgym.agent.policies.server import VllmServer
from patchgym.agent.policy import Completion, PolicyLoad, SampleRequest

TOKENIZER = CharacterTokenizer()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Member:
    """Answers when it is let; counts what it was asked."""

    version: int = 0
    dead: bool = False
    held: bool = False
    asked: list[str] = field(default_factory=list)
    gate: anyio.Event = field(default_factory=anyio.Event)
    running: int = 0

    async def sample(self, request: SampleRequest) -> Completion:
        self.asked.append(request.rollout_id)
        if self.dead:
            raise PolicyUnavailable("this one is dead")
        if not request.tokens or request.max_new_tokens < 1:
            raise PolicyRefused("nonsense")
        self.running += 1
        try:
            if self.held:
                await self.gate.wait()
            await anyio.lowlevel.checkpoint()
        finally:
            self.running -= 1
        if self.dead:
            raise PolicyUnavailable("it died in the middle")
        return Completion(tokens=(5,), logprobs=(0.0,), policy_version=self.version, finish="eos")

    async def check_health(self) -> None:
        if self.dead:
            raise PolicyUnavailable("this one is dead")

    def load(self) -> PolicyLoad:
        return PolicyLoad(running=self.running, cache_use=0.25)


class Letters:
    """Letters drawn by the seed, one every millisecond."""

    version = 0

    async def sample(self, request: SampleRequest) -> Completion:
        draw = random.Random(request.seed if request.temperature else 0)
        tokens = list[int]()
        while len(tokens) < request.max_new_tokens:
            await anyio.sleep(0.001)
            tokens += TOKENIZER.encode(draw.choice("abcdefgh"))
        return Completion(
            tokens=tuple(tokens),
            logprobs=(-2.0794415 if request.temperature else 0.0,) * len(tokens),
            policy_version=self.version,
            finish="length",
        )

    def load(self) -> PolicyLoad:
        return PolicyLoad()


def ask(rollout: str, text: str) -> SampleRequest:
    tokens = tuple(TOKENIZER.encode(text))
    return SampleRequest(rollout_id=rollout, tokens=tokens, max_new_tokens=4)


async def test_a_group_and_all_turns_of_its_rollouts_stay_together() -> None:
    members = {name: Member() for name in "abcd"}
    async with PolicyRouter(members) as router:
        for group in range(40):
            for rollout in range(4):
                for turn in range(3):
                    prompt = f"task {group}" + "".join(
                        f" turn {i} of {rollout}" for i in range(turn)
                    )
                    await router.sample(ask(f"{group}/{rollout}", prompt))
    homes: dict[str, set[str]] = {}
    for name, member in members.items():
        for asked in member.asked:
            homes.setdefault(asked.split("/")[0], set()).add(name)
    assert all(len(names) == 1 for names in homes.values())
    assert all(len(member.asked) >= 12 for member in members.values())  # and all have work


async def test_a_busy_home_is_passed_by() -> None:
    members = {name: Member(held=True) for name in "ab"}
    async with PolicyRouter(members, slack=2) as router, anyio.create_task_group() as group:
        for rollout in range(10):
            group.start_soon(router.sample, ask(str(rollout), "one and the same prompt"))
        await anyio.wait_all_tasks_blocked()
        running = sorted(member.running for member in members.values())
        assert running == [4, 6]  # the home has at most slack more, and the one that tips it
        assert router.load() == PolicyLoad(running=10, cache_use=0.25)
        for member in members.values():
            member.gate.set()


async def test_turns_of_a_dead_member_are_asked_again_elsewhere() -> None:
    members = {name: Member(held=True) for name in "ab"}
    done = list[Completion]()
    async with PolicyRouter(members, look_seconds=0.05) as router:

        async def one(rollout: str) -> None:
            done.append(await router.sample(ask(rollout, f"prompt {rollout}")))

        async with anyio.create_task_group() as group:
            for rollout in range(12):
                group.start_soon(one, str(rollout))
            await anyio.wait_all_tasks_blocked()
            assert all(member.running for member in members.values())
            members["a"].dead = True
            for member in members.values():
                member.held = False
                member.gate.set()
        assert len(done) == 12
        said = router.statistics()
        assert not said["a"].up and said["a"].failures and said["a"].why
        assert said["b"].turns == 12 and said["b"].up
        members["a"].dead = False
        with anyio.fail_after(5):
            while not router.statistics()["a"].up:  # noqa: ASYNC110
                await anyio.sleep(0.02)


async def test_past_the_deadline_the_culprit_is_named() -> None:
    dead, hung = Member(dead=True), Member(held=True)
    async with PolicyRouter({"first": dead}, turn_limit=0.3) as router:
        with pytest.raises(PolicyTimeout, match=r"no answer in 0.3 s: .*first: this one is dead"):
            await router.sample(ask("r", "prompt"))
    async with PolicyRouter({"second": hung}, turn_limit=0.3) as router:
        with pytest.raises(PolicyTimeout, match="second did not answer"):
            await router.sample(ask("r", "prompt"))
    assert hung.running == 0


async def test_a_refused_request_is_not_asked_elsewhere() -> None:
    members = {name: Member() for name in "ab"}
    async with PolicyRouter(members) as router:
        with pytest.raises(PolicyRefused):
            await router.sample(ask("r", ""))
        assert sum(len(member.asked) for member in members.values()) == 1
        assert all(said.up for said in router.statistics().values())


async def test_draining_waits_for_what_runs_and_gives_nothing_new() -> None:
    members = {name: Member(held=True) for name in "ab"}
    async with PolicyRouter(members) as router, anyio.create_task_group() as group:
        for rollout in range(8):
            group.start_soon(router.sample, ask(str(rollout), f"prompt {rollout}"))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(PolicyTimeout, match="a still has"):
            await router.drain("a", limit=0.1)
        before = len(members["a"].asked)
        members["b"].held = False
        for rollout in range(8):
            await router.sample(ask(f"new {rollout}", f"prompt {rollout}"))
        assert len(members["a"].asked) == before
        for member in members.values():
            member.gate.set()
        await router.drain("a", limit=5)
        assert router.statistics()["a"].running == 0
        router.undrain("a")
        assert not router.statistics()["a"].draining
        with pytest.raises(ValueError, match="no member is named 'c'"):
            router.undrain("c")


async def test_its_version_is_the_oldest_of_those_that_are_up() -> None:
    members = {"a": Member(version=4), "b": Member(version=7), "c": Member(version=2)}
    async with PolicyRouter(members, look_seconds=60) as router:
        assert router.version == 2
        await router.drain("c")
        assert router.version == 4


async def test_it_keeps_every_promise_over_servers_one_of_which_is_gone() -> None:
    first, second = (
        ConformanceServer(Letters(), window=600),
        ConformanceServer(Letters(), window=600),
    )
    async with first, second:
        async with VllmServer(first.url, poll_seconds=0.02) as a:
            async with VllmServer(second.url, poll_seconds=0.02) as b:
                await first.die()
                async with PolicyRouter({"a": a, "b": b}) as router:
                    subject = Subject(
                        policy=router,
                        context=tuple(TOKENIZER.encode("hello")),
                        vocabulary=1 << 17,
                        decode=TOKENIZER.decode,
                        window=600,
                        stops=False,
                    )
                    await check_policy(subject)
                    assert not router.statistics()["a"].up
