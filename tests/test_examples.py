"""The examples run: an environment without a repository, its agent, and the docs' simulation."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from patchgym.agent import CharacterTokenizer, RolloutLimits, ScriptedPolicy, Trajectory, rollout
from patchgym.trainer.domain import Domain, load_attribute
from patchgym.trainer.idle import RolloutStages, StageBoard

LIMITS = RolloutLimits(max_turns=2, max_new_tokens=20, context_tokens=400)


@pytest.fixture
def arithmetic(root: Path) -> str:
    return str(root / "examples" / "arithmetic.py")


async def play(arithmetic: str, *answers: str) -> tuple[Trajectory, Any]:
    make = load_attribute(f"{arithmetic}:SumDomain", "environment.use")
    domain: Domain = make({"top": 9})
    tokenizer = CharacterTokenizer()
    task: Any = domain.train[0]
    said = iter(answers)

    def script(text: str, seed: int) -> str:
        assert f"What is {task.left} + {task.right}?" in text
        return next(said).replace("RIGHT", str(task.left + task.right))

    trajectory = await rollout(
        task_id=task.id,
        rollout_id="r",
        seed=0,
        agent=load_attribute(f"{arithmetic}:SumAgent", "agent.scaffold")(tokenizer),
        environment=domain.environment(task, RolloutStages(StageBoard(), "r")),
        policy=ScriptedPolicy(tokenizer, script),
        limits=LIMITS,
    )
    return trajectory, await domain.score(task, trajectory)


@pytest.mark.anyio
async def test_a_right_sum_earns_one(arithmetic: str) -> None:
    trajectory, reward = await play(arithmetic, " RIGHT.")
    assert (trajectory.stop_reason, len(trajectory.turns)) == ("solved", 1)
    assert (reward.total, reward.resolved) == (1.0, True)


@pytest.mark.anyio
async def test_a_corrected_sum_earns_half_and_a_wrong_one_nothing(arithmetic: str) -> None:
    trajectory, reward = await play(arithmetic, "no idea", " RIGHT")
    kinds = [o.kind for turn in trajectory.turns for o in turn.observations]
    assert (kinds, reward.total) == (["format_error", "output"], 0.5)
    trajectory, reward = await play(arithmetic, "-1", "-1")
    assert (trajectory.stop_reason, reward.total, reward.resolved) == ("submitted", 0.0, False)


def test_it_stays_small_and_knows_no_trainer(root: Path) -> None:
    text = (root / "examples" / "arithmetic.py").read_text()
    assert len(text.splitlines()) < 100
    imported = {
        node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert not any(name.startswith(("patchgym.trainer", "patchgym.sandbox")) for name in imported)


def test_the_docs_simulation_runs(
    root: Path, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "rollouts.md").read_text(), re.S)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=clean_environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shares = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    assert len(shares) == 3 and all(0 < share <= 1 for share in shares)
