"""What the process that runs rollouts takes for each, tools aside: the whole pipeline on nothing.

Training as it is, with an environment that answers at once and a reward that is known at once: all
that is left is rollouts, groups, ledger and bookkeeping. Two lengths of rollouts tell the cost of
a turn from that of a rollout.
"""

from __future__ import annotations

import time

from patchgym.agent import Environment, Trajectory
from patchgym.agent.action import Observation, Opening, ToolCall
from patchgym.agent.repair.environment import REPLACE_FUNCTION
from patchgym.datasets.task import Task
from patchgym.rewards import Reward
from patchgym.trainer.domain import OnStage

from .world import Answers, RealCase, SleepingPolicy, tasks, train

LONG = 6
"""Turns of the longer rollouts."""


class Nothing:
    """An environment that answers at once, and is over after a number of calls."""

    tools = (REPLACE_FUNCTION,)
    answers = True

    def __init__(self, task: Task, calls: int) -> None:
        self._task, self._left = task, calls

    async def __aenter__(self) -> Nothing:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def open(self) -> Opening:
        """The task, as the repair environment shows it."""
        task = self._task
        assert task.focus is not None and task.files is not None
        source = task.files[task.focus.path]
        facts = {"function": task.focus.function, "path": task.focus.path, "source": source}
        return Opening(text=task.statement.strip(), facts=facts)

    async def step(self, call: ToolCall) -> Observation:
        """One call less to go."""
        self._left -= 1
        return Observation(kind="output", text="done", done=self._left == 0, tool=call.name)

    async def outcome(self) -> bytes:
        """No diff."""
        return b""


class NothingDomain:
    """Implements `Domain`."""

    heldout: tuple[Task, ...] = ()

    def __init__(self, calls: int) -> None:
        self.train = tasks()
        self._calls = calls
        self._scored = 0

    def environment(self, task: Task, on_stage: OnStage) -> Environment:
        """A fresh one."""
        return Nothing(task, self._calls)

    async def score(self, task: Task, trajectory: Trajectory) -> Reward:
        """Every other one is solved."""
        self._scored += 1
        return Reward.of_answer(float(self._scored % 2), resolved=self._scored % 2 == 1)

    def expect(self, coming: object) -> None:
        """Nothing needs to be ready."""


async def measure(seconds: float) -> dict[str, float]:
    """Processor seconds of a turn and of a rollout."""
    short, long = await _cost(1, seconds), await _cost(LONG, seconds)
    turn = max((long - short) / (LONG - 1), 0.0)
    return {"turn_seconds": round(turn, 5), "rollout_seconds": round(max(short - turn, 0.0), 5)}


async def _cost(calls: int, seconds: float) -> float:
    """Processor seconds of a rollout of so many turns."""
    policy = SleepingPolicy(Answers(tasks()), "const:0.2")
    case = RealCase(slots=16, workers=8, seconds=seconds, turns=calls)
    began = time.process_time()
    run = await train(case, NothingDomain(calls), policy)
    return (time.process_time() - began) / len(run.rollouts)
