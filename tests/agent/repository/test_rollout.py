"""Rollouts: a scripted policy with a plain agent works on tasks, and its diff is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from patchgym.agent import (
    Action,
    CharacterTokenizer,
    Completion,
    Context,
    Observation,
    Opening,
    RolloutLimits,
    ScriptedPolicy,
    ToolCall,
    ToolSpec,
    Trajectory,
    rollout,
)
from patchgym.agent.repository import RepositoryEnvironment
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import JudgeConfig, judge
from patchgym.sandbox import Pool

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
Opened = Callable[..., RepositoryEnvironment]
LIMITS = RolloutLimits(max_turns=10, max_new_tokens=2000, context_tokens=50_000)


class JsonAgent:
    """Reads calls as a JSON list of [name, arguments]."""

    stop: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.tokenizer = CharacterTokenizer()

    def open(self, opening: Opening, tools: Sequence[ToolSpec], *, room: int) -> Context:
        names = " ".join(tool.name for tool in tools)
        return Context(tokens=tuple(self.tokenizer.encode(f"{opening.text}\n{names}\n>")))

    def act(self, completion: Completion) -> Action:
        text = self.tokenizer.decode(completion.tokens)
        calls = tuple(ToolCall(name=name, arguments=given) for name, given in json.loads(text))
        return Action(text=text, calls=calls)

    def reply(self, observations: Sequence[Observation], *, room: int) -> Context:
        words = "\n".join(observation.text for observation in observations)
        return Context(tokens=tuple(self.tokenizer.encode(f"\n{words}\n>")))


def script(turns: Sequence[Any]) -> ScriptedPolicy:
    """A policy that makes these calls, a list a turn."""
    left = [json.dumps(turn) for turn in turns]
    return ScriptedPolicy(CharacterTokenizer(), lambda text, seed: left.pop(0))


async def roll(
    environment: RepositoryEnvironment,
    turns: Sequence[Any],
    limits: RolloutLimits = LIMITS,
    earlier: Trajectory | None = None,
) -> Trajectory:
    return await rollout(
        task_id=environment.task.id,
        rollout_id="r",
        seed=1,
        agent=JsonAgent(),
        environment=environment,
        policy=script(turns),
        limits=limits,
        earlier=earlier.turns if earlier else (),
    )


def changed(task: Task) -> tuple[str, str]:
    """The line that the gold patch takes out, and the one that it puts in."""
    lines = task.gold_patch.splitlines()
    old = [line[1:] for line in lines if line.startswith("-") and not line.startswith("---")]
    new = [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]
    return "\n".join(old), "\n".join(new)


async def test_a_bundled_task_is_solved_and_judged_resolved(
    pool: Pool, opened: Opened, tmp_path: Any
) -> None:
    task = bundled_tasks("train")[0]
    assert task.focus is not None
    path = task.focus.path
    old, new = changed(task)
    turns = [
        [["bash", {"command": "ls"}], ["view", {"path": path}]],
        [["run_tests", {}]],
        [["edit", {"path": path, "search": old, "replace": new}], ["run_tests", {}]],
        [["submit", {}], ["bash", {"command": "never"}]],
    ]
    done = await roll(opened(pool, task), turns)
    assert (done.stop_reason, done.error) == ("submitted", "")
    assert [[seen.kind for seen in turn.observations] for turn in done.turns] == [
        ["output", "output"], ["tests"], ["output", "tests"], ["submitted"]
    ]  # fmt: skip
    assert (
        done.turns[2].observations[1].text
        == f"{len(task.tests)} of {len(task.tests)} tests passed."
    )
    verdict = await judge(task, done.outcome, pool, JudgeConfig(repositories=tmp_path))
    assert (verdict.status, verdict.tampering) == ("resolved", ())


async def test_a_rollout_that_runs_out_of_turns_keeps_its_diff(pool: Pool, opened: Opened) -> None:
    turns = [[["bash", {"command": "echo 1 > one.txt"}]]] * 2
    limits = RolloutLimits(max_turns=2, max_new_tokens=2000, context_tokens=50_000)
    done = await roll(opened(pool), turns, limits)
    assert done.stop_reason == "turn_limit"
    assert b"one.txt" in done.outcome


async def test_a_partial_rollout_is_replayed_in_a_fresh_sandbox(pool: Pool, opened: Opened) -> None:
    first = [
        [["bash", {"command": "cd docs; export A=1; echo x > new; ls"}]],
        [["run_tests", {}], ["view", {"path": "docs"}]],
        [["edit", {"path": "calc.py", "search": "a - c", "replace": "a + b"}]],
    ]
    last = [["edit", {"path": "calc.py", "search": "a - b", "replace": "a + b"}], ["submit", {}]]
    limits = RolloutLimits(max_turns=3, max_new_tokens=2000, context_tokens=50_000)
    partial = await roll(opened(pool), first, limits)
    whole = await roll(opened(pool), [last], earlier=partial)
    assert (whole.stop_reason, whole.replayed) == ("submitted", 3)
    assert b"docs/new" in whole.outcome
    assert b"a + b" in whole.outcome
