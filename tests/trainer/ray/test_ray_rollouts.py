"""Rollouts and rewards on the hosts of a real cluster, beside the same ones in this process."""

from __future__ import annotations

import dataclasses
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from ray_nodes import RayNodes
from repair_answers import gold_source

from patchgym.agent import (
    CharacterTokenizer,
    Completion,
    RolloutLimits,
    SampleRequest,
    ScriptedPolicy,
    Trajectory,
)
from patchgym.datasets.task import Task, bundled_tasks, dump_tasks
from patchgym.rewards import Reward
from patchgym.trainer.admission import Admission
from patchgym.trainer.agents import make_agents
from patchgym.trainer.config import RunConfig, ScoringSection, config_from_mapping
from patchgym.trainer.domain import Domain
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.group import WorkItem
from patchgym.trainer.idle import StageBoard
from patchgym.trainer.pipeline import Pipeline, PipelineParts, Rollouts
from patchgym.trainer.progress import Progress
from patchgym.trainer.ray.domain import RayRollouts, open_ray
from patchgym.trainer.repositories import open_repositories
from patchgym.trainer.sources import ListSource

pytestmark = [pytest.mark.docker, pytest.mark.slow]
LIMITS = RolloutLimits(max_turns=2, max_new_tokens=400, context_tokens=4000)
Delivered = dict[str, tuple[Trajectory, Reward]]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of four tasks to train on, and of one held out."""
    folder = tmp_path_factory.mktemp("tasks")
    paths = folder / "train.jsonl", folder / "heldout.jsonl"
    train, heldout = bundled_tasks("train")[:4], bundled_tasks("heldout")[:1]
    for path, tasks in zip(paths, (train, heldout), strict=True):
        dump_tasks(tasks, path)
    return paths


def configured(few: tuple[Path, Path], address: str) -> RunConfig:
    """A run over these tasks."""
    return config_from_mapping(
        {
            "tasks": {"train": str(few[0]), "heldout": str(few[1])},
            "sandbox": {"slots": 4, "tests_timeout": 120.0},  # a busy machine is no failure
            "scoring": {"workers": 2, "cache": ""},
            "ray": {"address": address, "silence": 60.0},
        },
        source="the test",
    )


def scripted(tasks: tuple[Task, ...]) -> ScriptedPolicy:
    """Right for even seeds, wrong for odd ones."""
    gold = {task.focus.function: gold_source(task) for task in tasks if task.focus}

    def answer(text: str, seed: int) -> str:
        name = next(name for name in gold if f"`{name}`" in text)
        return f"{gold[name]}```" if seed % 2 == 0 else f"def {name}(*args):\n    return 7\n```"

    return ScriptedPolicy(CharacterTokenizer(), answer)


async def delivered(
    config: RunConfig, domain: Domain, policy: ScriptedPolicy, rollouts: Rollouts | None
) -> Delivered:
    """What comes back of every training task, three times."""
    found: Delivered = {}

    async def deliver(item: WorkItem, trajectory: Trajectory, reward: Reward) -> None:
        found[item.rollout_id] = (trajectory, reward)

    parts = PipelineParts(
        policy=policy,
        agents=make_agents(config, CharacterTokenizer()),
        domain=domain,
        board=StageBoard(),
        admission=Admission(6),
        rollouts=rollouts,
    )
    source = ListSource("x", domain.train, samples=3, seed=0)
    await Pipeline(parts, limits=LIMITS, scoring=ScoringSection()).run(source, deliver, slots=6)
    assert parts.board.counts() == {}
    return found


async def on_ray(config: RunConfig, policy: ScriptedPolicy, stack: AsyncExitStack) -> RayRollouts:
    """Rollouts on the cluster."""
    domain = await open_ray(config, Progress(), stack)
    rollouts = RayRollouts(domain=domain, policy=policy)
    await rollouts.equip(CharacterTokenizer())
    return rollouts


def told(found: Delivered) -> dict[str, tuple[object, ...]]:
    """What must be alike: ids, texts, calls, observations, outcomes, rewards; not seconds."""
    return {
        name: (
            trajectory.stop_reason,
            trajectory.error,
            trajectory.outcome,
            [
                (turn.context, turn.completion, turn.text, [o.kind for o in turn.observations])
                for turn in trajectory.turns
            ],
            reward.total,
            reward.verdict.status,
            [(score.name, score.value) for score in reward.scores],
        )
        for name, (trajectory, reward) in found.items()
    }


async def test_results_equal_those_of_this_process(
    cluster: RayNodes, few: tuple[Path, Path], docker_image: str
) -> None:
    here = configured(few, "")
    policy = scripted(bundled_tasks("train")[:4])
    async with AsyncExitStack() as stack:
        domain = await open_repositories(here, Progress(), stack)
        local = await delivered(here, domain, policy, None)
    async with AsyncExitStack() as stack:
        there = configured(few, cluster.address)
        rollouts = await on_ray(there, policy, stack)
        remote = await delivered(there, rollouts.domain, policy, rollouts)
    assert told(remote) == told(local)
    assert len(local) == 12
    assert {reward.total for _, reward in local.values()} >= {0.0, 1.0}


class SlowPolicy(ScriptedPolicy):
    """Takes long enough for a node to die meanwhile."""

    async def sample(self, request: SampleRequest) -> Completion:
        await anyio.sleep(3)
        return await super().sample(request)


async def test_a_node_that_dies_is_a_typed_failure_and_scores_go_elsewhere(
    cluster: RayNodes, few: tuple[Path, Path], docker_image: str
) -> None:
    tasks = bundled_tasks("train")[:4]
    slow = SlowPolicy(CharacterTokenizer(), scripted(tasks)._answer)
    config = configured(few, cluster.address)
    found: Delivered = {}
    async with AsyncExitStack() as stack:
        rollouts = await on_ray(config, slow, stack)
        async with anyio.create_task_group() as group:

            async def act() -> None:
                found.update(await delivered(config, rollouts.domain, slow, rollouts))

            group.start_soon(act)
            await anyio.sleep(1.5)
            await anyio.to_thread.run_sync(cluster.nodes[-1].kill)
    cluster.nodes.pop()
    cluster.add()
    assert len(found) == 12
    lost = [t for t, _ in found.values() if t.stop_reason == "host_lost"]
    assert 1 <= len(lost) < 12
    for trajectory in lost:
        assert trajectory.error.startswith("SandboxLost: host ")
    for trajectory, reward in found.values():
        if trajectory.stop_reason in ("solved", "submitted"):
            assert reward.total is not None  # the surviving host scored it


async def test_a_policy_that_fails_is_data_of_its_kind(
    cluster: RayNodes, few: tuple[Path, Path], docker_image: str
) -> None:
    def refuse(text: str, seed: int) -> str:
        raise ValueError("the model is on holiday")

    policy = ScriptedPolicy(CharacterTokenizer(), refuse)
    config = configured(few, cluster.address)
    async with AsyncExitStack() as stack:
        rollouts = await on_ray(config, policy, stack)
        found = await delivered(config, rollouts.domain, policy, rollouts)
    for trajectory, _ in found.values():
        assert trajectory.stop_reason == "policy_failed"
        assert "ValueError: the model is on holiday" in trajectory.error


async def test_an_invalid_task_is_refused_by_its_name(
    cluster: RayNodes, tmp_path: Path, docker_image: str
) -> None:
    good, other = bundled_tasks("train")[:2]
    broken = dataclasses.replace(good, gold_patch=other.gold_patch)
    files = tmp_path / "train.jsonl", tmp_path / "heldout.jsonl"
    dump_tasks([broken], files[0])
    dump_tasks(bundled_tasks("heldout")[:1], files[1])
    config = configured(files, cluster.address)
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigError, match=broken.id):
            await open_ray(config, Progress(), stack)
