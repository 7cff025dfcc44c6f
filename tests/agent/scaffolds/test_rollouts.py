"""Token in, token out: what the learner gets is what the sampler saw and gave, id by id.

For each real template 1,000 rollouts are played by a policy that samples whatever it likes (random
ids, control ids, cut turns, good and bad calls) against an environment whose output is hostile.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import pytest
from real_chats import ALL_CHATS, real_chat

from patchgym.agent import (
    Completion,
    Observation,
    Opening,
    PolicyLoad,
    RolloutLimits,
    SampleRequest,
    Segment,
    ToolCall,
    ToolSpec,
    Trajectory,
    rollout,
)
from patchgym.agent.chat import find_family
from patchgym.agent.scaffolds import BashAgent, ScaffoldConfig, ToolAgent
from patchgym.trainer.model import Tokenizer

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.model]

ROLLOUTS = 1000
LIMITS = RolloutLimits(max_turns=8, max_new_tokens=48)
TOOLS = (
    ToolSpec(
        name="bash",
        description="Run a command.",
        parameters={
            "type": "object",
            "properties": {"command": {"type": "string", "description": "what to run"}},
            "required": ["command"],
        },
    ),
    ToolSpec(
        name="submit", description="Hand in.", parameters={"type": "object", "properties": {}}
    ),
)


@dataclass(slots=True)
class Sampler:
    """A policy that writes down every request and what it gave."""

    tokenizer: Tokenizer
    random: random.Random
    turns: Sequence[tuple[int, ...]]
    log: list[tuple[SampleRequest, Completion]] = field(default_factory=list)
    version: int = 3
    vocabulary: int = field(init=False)

    def __post_init__(self) -> None:
        self.vocabulary = self.tokenizer.vocabulary

    async def sample(self, request: SampleRequest) -> Completion:
        draw = self.random
        ids = list(draw.choice(self.turns))
        if draw.random() < 0.4:
            ids = [draw.randrange(self.vocabulary) for _ in range(draw.randint(1, 20))]
        if draw.random() < 0.2:
            at = draw.randrange(len(ids) + 1)
            ids[at:at] = self.tokenizer.encode(draw.choice(self.tokenizer.control_tokens()))
        ids = ids[: request.max_new_tokens]
        if draw.random() < 0.2:
            ids = ids[: draw.randint(1, len(ids))]
        ended = ids[-1] in self.tokenizer.end_ids
        completion = Completion(
            tokens=tuple(ids),
            logprobs=tuple(-draw.random() for _ in ids),
            policy_version=self.version,
            finish="eos" if ended else "length",
        )
        self.log.append((request, completion))
        return completion

    def load(self) -> PolicyLoad:
        return PolicyLoad()


class HostileWorld:
    """An environment that answers with spelled control tokens, halves of them, and odd text."""

    tools: Sequence[ToolSpec] = TOOLS
    answers = False

    def __init__(self, tokenizer: Tokenizer, draw: random.Random) -> None:
        self._control, self._random = tokenizer.control_tokens(), draw

    async def __aenter__(self) -> HostileWorld:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    async def open(self) -> Opening:
        return Opening(text=f"Fix {self._text(3)}")

    async def step(self, call: ToolCall) -> Observation:
        if call.name == "submit":
            done = self._random.random() < 0.5
            return Observation(kind="submitted" if done else "output", text="no", done=done)
        text = self._text(self._random.choice((0, 1, 5, 60)))
        return Observation(kind="output", text=text, done=False, tool="bash")

    async def outcome(self) -> bytes:
        return b""

    def _text(self, pieces: int) -> str:
        draw = self._random
        found: list[str] = []
        for _ in range(pieces):
            token = draw.choice(self._control)
            at = draw.randrange(len(token) + 1)
            words = ("x = 1\n", " ", "é🙂", "\ud800", "\0", '"}', "\\n", "\n\n", "K\u0338", "<<")
            found.append(draw.choice((token, token[:at], token[at:], *words)))
        return "".join(found)


def usual_turns(tokenizer: Tokenizer, bash: bool) -> list[tuple[int, ...]]:
    """Turns that a model might give: calls, two calls, broken ones, none."""
    if bash:
        call, submit = "Look.\n```bash\nls\n```", "submit"
    else:
        write = find_family(tokenizer).format.write
        call = write(ToolCall(name="bash", arguments={"command": "ls"}))
        submit = write(ToolCall(name="submit"))
    texts = [call, call, call, call + "\n" + call, call[:-4], call.replace('"', "'"), submit, "hm"]
    texts += [call + "; " + call, call.replace("bash", "dash"), "<think>\nhm\n</think>\n" + call]
    return [(*tokenizer.encode(text), tokenizer.end_of_turn) for text in texts]


def check_segments(trajectory: Trajectory, log: Sequence[tuple[SampleRequest, Completion]]) -> int:
    """Compare with the sampler's log, token by token; how many segments there were."""
    segments = trajectory.segments()
    rows = iter(log)
    end = 0
    for segment, turns in zip(segments, split(trajectory), strict=True):
        expected_mask = [False] * len(segment.tokens)
        expected_logprobs = [0.0] * len(segment.tokens)
        for _ in range(turns):
            request, completion = next(rows)
            start = len(request.tokens)
            assert segment.tokens[:start] == request.tokens
            end = start + len(completion.tokens)
            assert segment.tokens[start:end] == completion.tokens
            expected_mask[start:end] = [True] * len(completion.tokens)
            expected_logprobs[start:end] = completion.logprobs
        assert end == len(segment.tokens)
        assert segment == Segment(
            tokens=segment.tokens,
            loss_mask=tuple(expected_mask),
            sampler_logprobs=tuple(expected_logprobs),
        )
    assert next(rows, None) is None
    return len(segments)


def split(trajectory: Trajectory) -> list[int]:
    """Turns in each segment."""
    counts: list[int] = []
    for turn in trajectory.turns:
        if turn.restarts or not counts:
            counts.append(0)
        counts[-1] += 1
    return counts


@pytest.mark.parametrize("name", [*ALL_CHATS, "bash"])
async def test_the_learner_gets_the_samplers_ids(name: str) -> None:
    bash = name == "bash"
    tokenizer = real_chat("qwen2.5" if bash else name)
    turns = usual_turns(tokenizer, bash)
    family = find_family(tokenizer)
    # How long a prompt is about; the room beside it is drawn, so that history must go at times.
    opened = (BashAgent if bash else ToolAgent)(tokenizer).open(Opening(text=""), TOOLS, room=0)
    seen: dict[str, int] = {}
    most_segments, most_calls = 0, 0
    for seed in range(ROLLOUTS):
        draw = random.Random(f"{name}/{seed}")
        config = ScaffoldConfig(
            observation_tokens=draw.choice((64, 200)), keep_observations=draw.choice((0, 1, 2))
        )
        agent = (
            BashAgent(tokenizer, config) if bash else ToolAgent(tokenizer, config, family=family)
        )
        sampler = Sampler(tokenizer, draw, turns)
        trajectory = await rollout(
            task_id="t",
            rollout_id=f"{name}/{seed}",
            seed=seed,
            agent=agent,
            environment=HostileWorld(tokenizer, draw),
            policy=sampler,
            limits=replace(
                LIMITS, context_tokens=len(opened.tokens) + draw.choice((200, 350, 900))
            ),
        )
        assert not trajectory.error, trajectory.error
        most_segments = max(most_segments, check_segments(trajectory, sampler.log))
        most_calls = max(most_calls, *(len(turn.calls) for turn in trajectory.turns), 0)
        seen[trajectory.stop_reason] = seen.get(trajectory.stop_reason, 0) + 1
    assert {"submitted", "turn_limit"} <= set(seen)
    assert most_segments > 1, "no rollout rewrote its history: the limits are too wide"
    assert most_calls > 1 or bash or family.name not in ("hermes", "mistral-args", "qwen-coder")
