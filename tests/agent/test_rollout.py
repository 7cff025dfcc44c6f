"""The rollout's loop: how it ends, what it keeps, what it takes up again."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType

import anyio
import pytest

from patchgym.agent import (
    Action,
    Completion,
    Context,
    Observation,
    ObservationKind,
    Opening,
    PolicyLoad,
    RolloutLimits,
    SampleRequest,
    Straggle,
    ToolCall,
    ToolSpec,
    Trajectory,
    VersionSpan,
    rollout,
)
from patchgym.sandbox import SandboxError

pytestmark = pytest.mark.anyio

LIMITS = RolloutLimits(max_turns=3, max_new_tokens=4, context_tokens=40, seconds=20.0)
TOOL = ToolSpec(name="say", description="Say it.", parameters={"type": "object"})

Answer = Callable[[SampleRequest], Completion]


def completion(*tokens: int, version: int = 0) -> Completion:
    logprobs = (-0.5,) * len(tokens)
    return Completion(tokens=tokens, logprobs=logprobs, policy_version=version, finish="eos")


class Policy:
    """Answers by a function, and keeps what it was asked."""

    version = 0

    def __init__(self, answer: Answer = lambda request: completion(7, 8)) -> None:
        self.answer = answer
        self.asked: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> Completion:
        await anyio.lowlevel.checkpoint()
        self.asked.append(request)
        return self.answer(request)

    def load(self) -> PolicyLoad:
        return PolicyLoad()


class Agent:
    """Calls the tool once a turn; an odd first token is a format error; 9 rewrites history."""

    stop: tuple[str, ...] = ("x",)

    def __init__(self) -> None:
        self.last = 0

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        return Context(tokens=(1, 2, 3))

    def act(self, completion: Completion) -> Action:
        self.last = completion.tokens[0]
        if self.last == 5:
            return Action(text="?", problem="say it with the tool")
        calls = tuple(ToolCall(name="say", arguments={"n": n}) for n in completion.tokens)
        return Action(text="!", calls=calls)

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        if self.last == 9:
            return Context(tokens=(1, 2, 4), restarts=True)
        return Context(tokens=tuple(10 + len(o.text) for o in observations))


class Environment:
    """Answers `n`; 99 ends the work; it may be told to fail."""

    tools = (TOOL,)

    def __init__(self, *, answers: bool = False, fail: Exception | None = None) -> None:
        self.answers = answers
        self.fail = fail
        self.steps: list[object] = []
        self.left = False
        self.hang = False
        self.words = "ok"

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.left = True

    async def open(self) -> Opening:
        return Opening(text="do it")

    async def step(self, call: ToolCall) -> Observation:
        self.steps.append(call.arguments["n"])
        await anyio.lowlevel.checkpoint()
        if self.hang:
            await anyio.sleep_forever()
        if self.fail:
            raise self.fail
        done = call.arguments["n"] == 99
        kind: ObservationKind = "submitted" if done else "output"
        return Observation(kind=kind, text=self.words, done=done, tool="say")

    async def outcome(self) -> bytes:
        return repr(self.steps).encode()


async def act(
    policy: Policy,
    environment: Environment | None = None,
    limits: RolloutLimits = LIMITS,
    earlier: Trajectory | None = None,
    straggle: Straggle | None = None,
) -> Trajectory:
    return await rollout(
        task_id="t",
        rollout_id="r",
        seed=1,
        agent=Agent(),
        environment=environment or Environment(),
        policy=policy,
        limits=limits,
        earlier=earlier.turns if earlier else (),
        straggle=straggle,
    )


async def test_what_is_handed_in_ends_it_and_is_kept() -> None:
    environment = Environment()
    trajectory = await act(Policy(lambda request: completion(7, 99, 8)), environment)
    assert (trajectory.stop_reason, trajectory.error) == ("submitted", "")
    assert trajectory.outcome == b"[7, 99]", "nothing runs after the work is handed in"
    assert environment.left


@pytest.mark.parametrize(("answers", "reason"), [(True, "submitted"), (False, "turn_limit")])
async def test_running_out_of_turns(answers: bool, reason: str) -> None:
    trajectory = await act(Policy(), Environment(answers=answers))
    assert (len(trajectory.turns), trajectory.stop_reason) == (3, reason)
    assert trajectory.outcome == b"[7, 8, 7, 8, 7, 8]"


async def test_each_turn_sees_exactly_what_came_before() -> None:
    policy = Policy()
    trajectory = await act(policy)
    (segment,) = trajectory.segments()
    assert segment.tokens == (1, 2, 3, 7, 8, 12, 12, 7, 8, 12, 12, 7, 8)
    assert [request.tokens for request in policy.asked] == [
        segment.tokens[:3],
        segment.tokens[:7],
        segment.tokens[:11],
    ]
    assert [i for i, m in enumerate(segment.loss_mask) if m] == [3, 4, 7, 8, 11, 12]
    assert segment.sampler_logprobs == tuple(-0.5 if m else 0.0 for m in segment.loss_mask)
    assert len({request.seed for request in policy.asked}) == 3
    assert all(request.stop == ("x",) for request in policy.asked)


async def test_a_rewritten_history_makes_a_segment() -> None:
    policy = Policy(lambda request: completion(9) if len(request.tokens) == 3 else completion(7))
    trajectory = await act(policy, limits=replace(LIMITS, max_turns=2))
    first, second = trajectory.segments()
    assert first.tokens == (1, 2, 3, 9)
    assert second.tokens == (1, 2, 4, 9)
    assert policy.asked[1].tokens == (1, 2, 4)


async def test_a_format_error_asks_no_environment() -> None:
    environment = Environment()
    trajectory = await act(Policy(lambda request: completion(5)), environment)
    assert environment.steps == []
    assert {o.kind for turn in trajectory.turns for o in turn.observations} == {"format_error"}
    assert trajectory.turns[0].observations[0].text == "say it with the tool"


async def test_a_context_that_overflows_on_turn_one() -> None:
    policy = Policy()
    trajectory = await act(policy, limits=replace(LIMITS, context_tokens=6))
    assert (trajectory.stop_reason, trajectory.turns, policy.asked) == ("context_limit", (), [])
    assert trajectory.segments() == ()


def raising(error: Exception) -> Answer:
    def answer(request: SampleRequest) -> Completion:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (raising(RuntimeError("out of memory")), "RuntimeError: out of memory"),
        (lambda r: completion(), "sampled no token at all"),
        (lambda r: replace(completion(1, 2), logprobs=(-1.0,)), "2 tokens and 1 log-prob"),
        (lambda r: replace(completion(1), logprobs=(math.nan,)), "log-probability nan"),
        (lambda r: replace(completion(1), logprobs=(0.5,)), "log-probability 0.5"),
        (lambda r: completion(1, 2, 3, 4, 5), "5 tokens where 4 were allowed"),
        (lambda r: completion(-3), "token id -3"),
        (
            lambda r: replace(completion(1), spans=(VersionSpan(policy_version=0, tokens=2),)),
            "spans don't cover",
        ),
        (
            lambda r: replace(completion(1), spans=(VersionSpan(policy_version=4, tokens=1),)),
            "not the oldest version",
        ),
    ],
)
async def test_a_policy_that_breaks_its_promises_is_data(answer: Answer, words: str) -> None:
    trajectory = await act(Policy(answer))
    assert trajectory.stop_reason == "policy_failed"
    assert words in trajectory.error
    assert trajectory.turns == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SandboxError("gone"), "sandbox_failed"),
        (RuntimeError("a bug"), "environment_failed"),
        (TimeoutError("slow"), "environment_failed"),
    ],
)
async def test_a_failing_environment_is_data_and_loses_no_sampled_id(
    error: Exception, reason: str
) -> None:
    environment = Environment(fail=error)
    trajectory = await act(Policy(), environment)
    assert (trajectory.stop_reason, trajectory.outcome) == (reason, b"")
    assert trajectory.error == f"{type(error).__name__}: {error}"
    assert trajectory.turns[0].completion.tokens == (7, 8)
    assert trajectory.turns[0].observations == ()
    assert environment.left


async def test_a_tool_that_hangs_is_named() -> None:
    environment = Environment()
    environment.hang = True
    trajectory = await act(Policy(), environment, replace(LIMITS, tool_seconds=0.1))
    assert trajectory.stop_reason == "environment_failed"
    assert trajectory.error == "the tool say did not answer in 0 s"


async def test_a_turn_that_is_never_sampled_meets_its_deadline() -> None:
    class Slow(Policy):
        async def sample(self, request: SampleRequest) -> Completion:
            await anyio.sleep_forever()
            raise AssertionError

    trajectory = await act(Slow(), limits=replace(LIMITS, turn_seconds=0.1))
    assert trajectory.stop_reason == "deadline"
    assert trajectory.error == "turn 1 was not sampled in 0 s"


async def test_the_whole_has_a_deadline() -> None:
    environment = Environment()
    environment.hang = True
    trajectory = await act(Policy(), environment, replace(LIMITS, seconds=0.2))
    assert trajectory.stop_reason == "deadline"
    assert len(trajectory.turns) == 1
    assert environment.left


async def test_cancellation_is_re_raised() -> None:
    environment = Environment()
    environment.hang = True
    with anyio.move_on_after(0.1) as scope:
        await act(Policy(), environment)
    assert scope.cancelled_caught
    assert environment.left


async def straggler() -> Trajectory:
    """A rollout that was cancelled in its third turn."""
    handle = Straggle()

    def answer(request: SampleRequest) -> Completion:
        if len(request.tokens) > 6:
            handle.cancel()
        return completion(7, version=len(request.tokens))

    trajectory = await act(Policy(answer), straggle=handle)
    assert trajectory.stop_reason == "straggler"
    return trajectory


async def test_a_straggler_goes_on_where_it_was() -> None:
    before = await straggler()
    whole = [turn for turn in before.turns if turn.observations]
    policy, environment = Policy(), Environment()
    trajectory = await act(policy, environment, earlier=before)
    assert trajectory.replayed == len(whole) == 2
    assert len(policy.asked) == 1, "what was sampled is not sampled again"
    assert [t.completion for t in trajectory.turns[:2]] == [t.completion for t in whole]
    assert environment.steps == [7, 7, 7, 8]
    assert [t.completion.policy_version for t in trajectory.turns] == [3, 5, 0]


async def test_a_world_that_answers_differently_ends_the_replay() -> None:
    before = await straggler()
    policy, environment = Policy(), Environment()
    environment.words = "not so"
    trajectory = await act(policy, environment, earlier=before)
    assert trajectory.replayed == 1
    assert len(policy.asked) == 2
    (segment,) = trajectory.segments()
    assert segment.tokens[:5] == (1, 2, 3, 7, 16), "the context is what the world said this time"
