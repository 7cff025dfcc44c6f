"""Rollouts end to end on real sandboxes, with a scripted policy: no model, everything else real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
from repair_answers import gold_source

from patchgym.agent import (
    CharacterTokenizer,
    Completion,
    RepairAgent,
    RolloutLimits,
    SampleRequest,
    ScriptedPolicy,
    Trajectory,
)
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import JudgeConfig, Reward, RewardConfig, Scorer, Verdict, judge
from patchgym.sandbox import Pool, SandboxSpec
from patchgym.trainer.admission import Admission
from patchgym.trainer.config import SandboxSection, ScoringSection
from patchgym.trainer.group import WorkItem
from patchgym.trainer.idle import StageBoard
from patchgym.trainer.pipeline import Pipeline, PipelineParts
from patchgym.trainer.repositories import RepositoryDomain
from patchgym.trainer.sources import ListSource

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
LIMITS = RolloutLimits(max_turns=2, max_new_tokens=400, context_tokens=4000)


@pytest.fixture(scope="module")
def tasks() -> tuple[Task, ...]:
    return bundled_tasks("train")[:3]


@pytest.fixture
async def pool(docker_image: str) -> AsyncIterator[Pool]:
    async with Pool(SandboxSpec(image=docker_image), size=3) as pool:
        yield pool


def answer(code: str) -> str:
    """The code block is opened for the policy."""
    return f"{code}```"


class Run:
    """Runs a policy's answers over tasks and keeps what is delivered."""

    def __init__(self, pool: Pool, folder: Path) -> None:
        self.pool = pool
        self.folder = folder
        self.board = StageBoard()
        self.delivered: dict[str, tuple[Trajectory, Reward]] = {}
        self.tokenizer = CharacterTokenizer()

    async def __call__(
        self,
        tasks: tuple[Task, ...],
        script: Callable[[str, int], str],
        *,
        samples: int = 1,
        policy: type[ScriptedPolicy] = ScriptedPolicy,
    ) -> None:
        domain = RepositoryDomain(
            scorer=self.scorer(),
            pool=self.pool,
            image="",
            train=tasks,
            heldout=(),
            sandbox=SandboxSection(),
            repositories=self.folder,
        )
        parts = PipelineParts(
            policy=policy(self.tokenizer, script),
            agents=partial(RepairAgent, self.tokenizer),
            domain=domain,
            board=self.board,
            admission=Admission(4),
        )
        pipeline = Pipeline(parts, limits=LIMITS, scoring=ScoringSection())
        source = ListSource("x", tasks, samples=samples, seed=0)
        await pipeline.run(source, self.deliver, slots=4)

    def scorer(self) -> Scorer:
        judging = JudgeConfig(repositories=self.folder, tests_timeout=10)

        async def verdict(task: Task, diff: bytes) -> Verdict:
            return await judge(task, diff, self.pool, judging)

        return Scorer(RewardConfig.of(), verdict=verdict, repositories=self.folder, deadline=60)

    async def deliver(self, item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        self.delivered[item.rollout_id] = (trajectory, reward)


async def test_a_right_answer_is_solved_in_one_turn_and_earns_one(
    pool: Pool, tasks: tuple[Task, ...], tmp_path: Path
) -> None:
    run = Run(pool, tmp_path)
    by_name = {task.focus.function: gold_source(task) for task in tasks if task.focus}

    def script(text: str, seed: int) -> str:
        return answer(next(code for name, code in by_name.items() if f"`{name}`" in text))

    await run(tasks, script, samples=2)
    assert len(run.delivered) == 6
    for trajectory, reward in run.delivered.values():
        assert trajectory.stop_reason == "solved"
        assert len(trajectory.turns) == 1
        assert trajectory.turns[0].done
        assert trajectory.outcome.startswith(b"diff --git")
        assert (reward.total, reward.resolved) == (1.0, True)
    assert sum(reward.shared for _, reward in run.delivered.values()) == 3
    assert run.board.counts() == {}


async def test_a_wrong_answer_sees_the_failing_test_and_gets_a_second_turn(
    pool: Pool, tasks: tuple[Task, ...], tmp_path: Path
) -> None:
    run = Run(pool, tmp_path)
    task = tasks[0]
    assert task.focus is not None
    wrong = f"def {task.focus.function}(*args):\n    return 'wrong'\n"
    seen: list[str] = []

    def script(text: str, seed: int) -> str:
        seen.append(text)
        return answer(wrong if len(seen) == 1 else gold_source(task))

    await run((task,), script)
    ((trajectory, reward),) = run.delivered.values()
    assert trajectory.stop_reason == "solved"
    first, second = trajectory.turns
    (observation,) = first.observations
    assert observation.kind == "tests"
    assert "failed" in observation.outcomes.values()
    assert "This test still fails: `" in seen[1]
    assert second.done
    assert reward.total == 1.0


async def test_what_is_no_answer_costs_no_sandbox_and_earns_nothing(
    pool: Pool, tasks: tuple[Task, ...], tmp_path: Path
) -> None:
    run = Run(pool, tmp_path)
    task = tasks[0]
    assert task.focus is not None and task.files is not None
    unchanged = task.files[task.focus.path]
    leases = pool.statistics().leases

    def script(text: str, seed: int) -> str:
        return "I do not know." if "does not define" not in text else answer(unchanged)

    await run((task,), script)
    ((trajectory, reward),) = run.delivered.values()
    kinds = [observation.kind for turn in trajectory.turns for observation in turn.observations]
    assert kinds == ["format_error", "no_change"]
    assert trajectory.stop_reason == "submitted"
    assert (reward.total, reward.verdict.evidence) == (0.0, "empty_patch")
    assert pool.statistics().leases == leases


async def test_the_sequence_is_what_the_policy_saw_and_gave(
    pool: Pool, tasks: tuple[Task, ...], tmp_path: Path
) -> None:
    run = Run(pool, tmp_path)
    log: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    class Logged(ScriptedPolicy):
        async def sample(self, request: SampleRequest) -> Completion:
            completion = await super().sample(request)
            log.append((request.tokens, completion.tokens))
            return completion

    await run((tasks[0],), lambda text, seed: "no", policy=Logged)
    ((trajectory, _),) = run.delivered.values()
    (first_seen, first_given), (second_seen, second_given) = log
    (sequence,) = trajectory.segments()
    assert sequence.tokens == (*second_seen, *second_given)
    assert second_seen[: len(first_seen) + len(first_given)] == (*first_seen, *first_given)
    sampled = [t for t, m in zip(sequence.tokens, sequence.loss_mask, strict=True) if m]
    assert sampled == [*first_given, *second_given]


async def test_a_failing_policy_is_data(
    pool: Pool, tasks: tuple[Task, ...], tmp_path: Path
) -> None:
    run = Run(pool, tmp_path)

    def script(text: str, seed: int) -> str:
        raise RuntimeError("out of memory")

    await run((tasks[0],), script)
    ((trajectory, reward),) = run.delivered.values()
    assert trajectory.stop_reason == "policy_failed"
    assert trajectory.error == "RuntimeError: out of memory"
    assert reward.total is None
