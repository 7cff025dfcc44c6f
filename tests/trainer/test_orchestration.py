"""Whole training runs in the simulated world: real stages, queues and learner; simulated time."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from patchgym.agent import Completion, PolicyLoad, SampleRequest
from patchgym.trainer import simulation
from patchgym.trainer.config import RunConfig, load_config
from patchgym.trainer.errors import RunStopped
from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.simulation import Latency, SimulatedPolicy, SimulatedRun, World, simulate
from patchgym.trainer.trajectory_store import TrajectoryStore

pytestmark = pytest.mark.anyio

QUICK = World(
    turns=3,
    turn_tokens=6,
    generation=Latency(spec="uniform:0.001,0.01"),
    reset=Latency(spec="const:0.001"),
    step=Latency(spec="lognormal:0.01,1.0"),
    reward=Latency(spec="const:0.005"),
)


def config(**more: object) -> RunConfig:
    values: dict[str, object] = {
        "run.steps": 4,
        "group.size": 4,
        "group.per_step": 2,
        "rollout.in_flight": 12,
        "rollout.max_turns": 3,
        "rollout.max_new_tokens": 6,
        "rollout.context_tokens": 128,
        "learner.row_tokens": [256],
        "failures.environment": 1,
        "failures.sandbox": 1,
    }
    values.update({key.replace("__", "."): value for key, value in more.items()})
    words = [(k, str(v).lower() if isinstance(v, bool) else str(v)) for k, v in values.items()]
    return load_config(None, words)


def changed(world: World, **more: Any) -> World:
    values = {name: getattr(world, name) for name in World.__dataclass_fields__}
    return World(**{**values, **more})


def committed(run: SimulatedRun) -> list[dict[str, Any]]:
    return [group for group in run.groups if group["state"] == "committed"]


async def test_failures_are_data_and_no_group_is_lost(tmp_path: Path) -> None:
    world = changed(QUICK, failing_steps=0.02, hanging=0.06, dying=0.1, seed=3)
    run = await simulate(config(run__steps=8, rollout__seconds=0.5), world, tmp_path)
    assert len(run.published) == 8
    assert len(committed(run)) >= 16
    ends = Counter(row["stop_reason"] for row in run.rollouts)
    ends.pop("straggler", None)  # of groups that came too late
    assert set(ends) == {"solved", "deadline", "environment_failed", "sandbox_failed"}
    # Whatever was opened is somewhere: trained, on its way, or dropped for a reason.
    assert {group["state"] for group in run.groups} <= {"committed", "ready", "dropped", "pending"}
    assert all(group["reason"] for group in run.groups if group["state"] == "dropped")
    failed = [row for row in run.rollouts if row["stop_reason"].endswith("_failed")]
    assert all(row["error"] and row["reward"] is None for row in failed)
    retried = {row["id"] for row in run.rollouts if "-retry" in row["id"]}
    assert retried, "a failed member is rolled out again"
    numbers = sorted(int(group["id"][1:]) for group in run.groups)
    assert numbers == list(range(len(numbers))), "every group that was opened is on record"


async def test_held_out_tasks_are_measured_while_training_goes_on(tmp_path: Path) -> None:
    more = {"evaluation__every": 2, "evaluation__samples": 2, "run__steps": 5}
    run = await simulate(config(**more), changed(QUICK, heldout=3), tmp_path)
    assert len(run.published) == 5
    with LedgerReader(tmp_path / "run.sqlite") as ledger:
        measured = ledger.rows("SELECT name, task_id FROM evaluations")
        first = ledger.meta("evaluation.step-2")
    assert first is not None and first["samples"] == 6
    tasks = Counter(row["task_id"] for row in measured if row["name"] == "step-2")
    assert sorted(tasks.values()) == [2, 2, 2]
    trained = {json.loads(group["members"])[0] for group in committed(run)}
    assert not any(name.startswith("step-") for name in trained)


async def test_a_slow_update_and_scoring_inside_are_told_apart_by_the_learner_s_account(
    tmp_path: Path,
) -> None:
    slow = changed(QUICK, reward=Latency(spec="const:0.2"), scored_inside=True)
    run = await simulate(config(run__steps=3), slow, tmp_path)
    waits = run.waits()
    assert waits["scoring"] == max(waits.values()) > 0.1
    assert sum(waits.values()) <= 1


async def test_on_policy_training_sees_no_old_weights(tmp_path: Path) -> None:
    run = await simulate(config(group__max_staleness=0), QUICK, tmp_path)
    assert [step["staleness"] for step in run.steps] == [{"0": 2}] * 4
    by_group: dict[str, set[int]] = {}
    for row in run.rollouts:
        by_group.setdefault(row["group_id"], set()).add(row["policy_version"])
    assert all(by_group[group["id"]] == {group["step"]} for group in committed(run))


async def test_asynchronous_training_keeps_its_bound(tmp_path: Path) -> None:
    settings = config(group__max_staleness=2, group__asynchronous=True, run__steps=8)
    run = await simulate(settings, QUICK, tmp_path)
    seen = {int(key) for step in run.steps for key in step["staleness"]}
    assert seen <= {0, 1, 2}
    assert seen & {1, 2}, "rollouts ran ahead"


async def test_a_group_with_a_quorum_does_not_wait_for_stragglers(tmp_path: Path) -> None:
    world = changed(QUICK, hanging=0.15, seed=5)
    settings = config(group__quorum=2, group__straggler_seconds=0.4)
    run = await simulate(settings, world, tmp_path)
    assert len(committed(run)) >= 8
    ends = Counter(row["stop_reason"] for row in run.rollouts)
    assert ends["straggler"] > 0
    assert "deadline" not in ends, "nobody waited for the rollout's own limit"
    assert any("straggled" in event["kind"] for event in run.events)
    assert max(row["seconds"] for row in run.rollouts) < 10


async def test_spare_members_make_groups_of_the_first_to_finish(tmp_path: Path) -> None:
    world = changed(QUICK, hanging=0.08, seed=6)
    run = await simulate(config(group__spare=2), world, tmp_path)
    with LedgerReader(tmp_path / "run.sqlite") as reader:
        rows = reader.rows("SELECT members FROM groups WHERE state = 'committed'")
    assert len(rows) >= 8
    # The members that count are as many as asked for, although more were rolled out.
    store = TrajectoryStore(tmp_path / "trajectories")
    for group in committed(run):
        members = [row for row in run.rollouts if row["group_id"] == group["id"]]
        trained = [store.read(name) for name in json.loads(group["members"])]
        counted = [item for item in trained if item.reward and item.reward.total is not None]
        assert len(counted) == 4
        assert len(members) >= 4
    assert any(row["stop_reason"] == "straggler" for row in run.rollouts)


@dataclass
class Overloaded(SimulatedPolicy):
    """Preempts for a while, as a sampler without memory does."""

    world: World
    looks: int = 0
    log: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.world)

    def load(self) -> PolicyLoad:
        self.looks += 1
        return PolicyLoad(preemptions=self.looks if 2 <= self.looks <= 3 else 3)

    async def sample(self, request: SampleRequest) -> Completion:
        completion = await super().sample(request)
        self.log.append((request.rollout_id, request.tokens, completion.tokens))
        return completion


async def test_overload_cancels_the_youngest_which_go_on_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Overloaded] = []

    def policy(world: World) -> Overloaded:
        made.append(Overloaded(world))
        return made[-1]

    monkeypatch.setattr(simulation, "SimulatedPolicy", policy)
    slow = changed(QUICK, generation=Latency(spec="const:0.3"), turns=6)
    settings = config(run__steps=3, rollout__max_turns=6)
    run = await simulate(settings, slow, tmp_path)
    assert len(committed(run)) >= 6
    cut = [row for row in run.rollouts if row["stop_reason"] == "straggler"]
    parts = [row for row in run.rollouts if "-part1" in row["id"]]
    assert cut and len(parts) == len(cut)
    store = TrajectoryStore(tmp_path / "trajectories")
    replayed = [store.read(row["id"]).trajectory for row in parts]
    assert any(trajectory.replayed for trajectory in replayed)
    for trajectory in replayed:
        before = store.read(trajectory.rollout_id.removesuffix("-part1")).trajectory
        kept = before.turns[: trajectory.replayed]
        assert [t.completion for t in trajectory.turns[: len(kept)]] == [t.completion for t in kept]
        asked = [tokens for name, tokens, _ in made[0].log if name == trajectory.rollout_id]
        assert len(asked) == len(trajectory.turns) - trajectory.replayed, "no turn sampled twice"


class Stuck(SimulatedPolicy):
    """Stops answering after a few turns."""

    asked = 0

    async def sample(self, request: SampleRequest) -> Completion:
        type(self).asked += 1
        if type(self).asked > 20:
            await anyio.sleep_forever()
        return await super().sample(request)


async def test_a_stall_is_written_down_and_ends_with_its_culprit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "SimulatedPolicy", Stuck)
    settings = config(run__stall_limit=1.0, group__wait_limit=4.0)
    with pytest.raises((RunStopped, ExceptionGroup)) as caught:
        await simulate(settings, QUICK, tmp_path)
    leaf: BaseException = caught.value
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert "the learner waited 4 s for 2 groups" in str(leaf)
    assert re.search(r"has 0: \d rollouts of t\d+ in sampling since \d s", str(leaf))
    with LedgerReader(tmp_path / "run.sqlite") as reader:
        events = {row["kind"]: row["detail"] for row in reader.rows("SELECT * FROM events")}
    report = json.loads(events["stalled"])["report"]
    culprit = r"learner waits \d s for groups: \d rollouts of t\d+ in sampling since \d s"
    assert re.match(culprit, report)
    assert "step 1; queue: 0 of 4 groups" in report
    assert "thread MainThread" in events["stalled"]


class Parrot(SimulatedPolicy):
    """Says the same to everyone, like a sampler with one fixed seed."""

    async def sample(self, request: SampleRequest) -> Completion:
        await anyio.sleep(0.001)
        return Completion(
            tokens=(5, 6), logprobs=(-4.8, -4.8), policy_version=self.version, finish="length"
        )


async def test_identical_samples_raise_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "SimulatedPolicy", Parrot)
    run = await simulate(config(run__steps=1), QUICK, tmp_path)
    words = [event["detail"] for event in run.events if event["kind"] == "alarm"]
    assert any("sampled the very same ids" in text for text in words)
