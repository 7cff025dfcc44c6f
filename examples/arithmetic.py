"""A second environment with no repository and no sandbox: sums, checked by arithmetic itself.

patchgym train --config examples/arithmetic.toml
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from patchgym import agent
from patchgym.agent.chat import ChatTokenizer, render_prompt, render_reply
from patchgym.rewards import Reward

SCHEMA = {"type": "object", "properties": {"value": {"type": "integer"}}}
ANSWER = agent.ToolSpec(name="answer", description="Give the sum.", parameters=SCHEMA)


@dataclass(frozen=True)
class Sum:
    """A task: two numbers to add."""

    id: str
    left: int
    right: int


class SumEnvironment:
    """Knows the numbers and nothing of models; a wrong answer may be corrected."""

    tools, answers = (ANSWER,), True

    def __init__(self, task: Sum) -> None:
        self.task, self.given = task, b""

    async def __aenter__(self) -> SumEnvironment:
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def open(self) -> agent.Opening:
        asked = f"{self.task.left} + {self.task.right}"
        return agent.Opening(text=f"What is {asked}?", facts={"sum": asked})

    async def step(self, call: agent.ToolCall) -> agent.Observation:
        value = call.arguments.get("value")
        self.given = str(value).encode()
        right = value == self.task.left + self.task.right
        return agent.Observation(kind="output", text="Right." if right else "Wrong.", done=right)

    async def outcome(self) -> bytes:
        return self.given


class SumAgent:
    """Knows how to ask, and takes the first number for the answer."""

    stop = ("\n",)

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer, self.begin, self.last = tokenizer, "", 0

    def open(self, opening: agent.Opening, tools: object, *, room: int) -> agent.Context:
        self.begin = f"{opening.facts['sum']} ="
        return agent.Context(tokens=render_prompt(self.tokenizer, opening.text, self.begin))

    def act(self, completion: agent.Completion) -> agent.Action:
        self.last, text = completion.tokens[-1], self.tokenizer.decode(completion.tokens)
        found = re.search(r"-?\d{1,9}", text)
        if found is None:
            return agent.Action(text=text, problem="Answer with a number.")
        call = agent.ToolCall(name="answer", arguments={"value": int(found[0])})
        return agent.Action(text=text, calls=(call,))

    def reply(self, observations: Sequence[agent.Observation], *, room: int) -> agent.Context:
        words = observations[-1].text
        return agent.Context(tokens=render_reply(self.tokenizer, self.last, words, self.begin))


class SumDomain:
    """Tasks, environments and rewards of one run."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        draw, top = random.Random(7), int(settings.get("top", 100))
        sums = [(draw.randrange(top), draw.randrange(top)) for _ in range(80)]
        tasks = [Sum(f"sum/{a}+{b}", a, b) for a, b in dict.fromkeys(sums)]
        self.train, self.heldout = tasks[16:], tasks[:16]

    def environment(self, task: Sum, on_stage: object) -> SumEnvironment:
        return SumEnvironment(task)

    async def score(self, task: Sum, trajectory: agent.Trajectory) -> Reward:
        right = trajectory.outcome == str(task.left + task.right).encode()
        return Reward.of_answer(float(right) / len(trajectory.turns), resolved=right)

    def expect(self, tasks: object) -> None: ...
