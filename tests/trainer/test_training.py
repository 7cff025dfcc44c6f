"""What one step does with its groups, with a stand-in for everything heavy."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from group_builders import TASKS, book, member, take
from patchgym.trainer.config import RunConfig, load_config
from patchgym.trainer.errors import RunStopped
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import Group
from patchgym.trainer.idle import StageBoard
from patchgym.trainer.ledger import Ledger, LedgerReader
from patchgym.trainer.progress import Progress
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.resume import Restored, restore_groups
from patchgym.trainer.training import Training
from patchgym.trainer.trajectory_store import TrajectoryStore

SMALL = {"group.per_step": "2", "group.size": "2", "run.steps": "1"}


class Learner:
    """Says of every update whether it was applied."""

    def __init__(self, reason: str) -> None:
        self.step, self.reason, self.published = 0, reason, 0

    async def train(self, batch: object) -> dict[str, Any]:
        """One update."""
        self.step += not self.reason
        return {
            "applied": not self.reason,
            "reason": self.reason,
            "not_finite": bool(self.reason),
            "step": self.step,
            "mismatch_mean": 0.2,
        }

    async def publish(self) -> None:
        """New weights."""
        self.published += 1


def groups(count: int) -> list[Group]:
    """Whole groups, each with a spread."""
    owner = book()
    found = []
    for _ in range(count):
        items = [take(owner, count), take(owner, count)]
        results = [owner.finish(item, member(item, float(i))) for i, item in enumerate(items)]
        assert isinstance(results[1], Group)
        found.append(results[1])
    return found


def training(config: RunConfig, learner: Learner, ledger: Ledger, store: TrajectoryStore) -> Any:
    """A run whose learner is `learner`, with two groups in its queue."""
    statistics = SimpleNamespace(sampled_tokens=0)
    resources = SimpleNamespace(
        board=StageBoard(),
        domain=SimpleNamespace(train=TASKS),
        pipeline_parts=lambda: SimpleNamespace(rollouts=None),
        learner=learner,
        train=learner.train,
        publish=learner.publish,
        policy=SimpleNamespace(version=0, statistics=lambda: statistics),
    )
    return Training(
        config,
        resources,  # type: ignore[arg-type]
        ledger=ledger,
        recorder=Recorder(ledger, store, FailureBudgets()),
        progress=Progress(),
        restored=Restored(ready=tuple(groups(2))),
    )


@pytest.mark.parametrize("reason", ["", "the gradient is not finite"])
async def test_groups_are_committed_only_by_an_update_that_was_applied(
    tmp_path: Path, reason: str
) -> None:
    config = load_config(None, [*SMALL.items(), ("learner.skip_budget", "0")])
    learner = Learner(reason)
    store = TrajectoryStore(tmp_path / "trajectories")
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        run = training(config, learner, ledger, store)
        for group in run._groups._ready:
            await run._groups.queue.put(group)
            for each in group.members:
                item = SimpleNamespace(
                    rollout_id=each.trajectory.rollout_id, group_id=group.group_id,
                    task=TASKS[group.number], member=0, number=group.number,
                )  # fmt: skip
                await run._recorder.rollout("train", item, each.trajectory, each.reward)
        if reason:
            with pytest.raises(RunStopped, match="step 1 was not applied: the gradient is not"):
                await run._step()
        else:
            await run._step()
        await ledger.flush()
    with LedgerReader(tmp_path / "run.sqlite") as reader:
        states = {row["state"] for row in reader.rows("SELECT state FROM groups")}
        assert states == {"taken" if reason else "committed"}
        alarms = [row["detail"] for row in reader.rows("SELECT detail FROM events")]
        assert any("differ by 0.200 nats" in words for words in alarms) == (not reason)
        assert any('"groups"' in words for words in alarms) == bool(reason)
        assert len(reader.steps()) == learner.published == (0 if reason else 1)
    restored = restore_groups(tmp_path / "run.sqlite", store, learner.step)
    assert (len(restored.ready), restored.committed) == ((2, 0) if reason else (0, 2))


async def test_a_batch_that_is_not_finite_is_left_out_until_the_budget_is_spent(
    tmp_path: Path,
) -> None:
    config = load_config(None, [*SMALL.items(), ("learner.skip_budget", "1")])
    learner = Learner("the gradient is not finite")
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        run = training(config, learner, ledger, TrajectoryStore(tmp_path / "trajectories"))
        for group in run._groups._ready:
            await run._groups.queue.put(group)
        await run._step()
        assert run._groups.book.dropped["not_finite"] == 2
        for group in groups(4)[2:]:
            run._recorder.group(group, "pending")
            run._recorder.group(group, "ready")
            await run._groups.queue.put(group)
        with pytest.raises(RunStopped, match="step 1 was not applied"):
            await run._step()
    with LedgerReader(tmp_path / "run.sqlite") as reader:
        events = [json.loads(row["detail"]) for row in reader.rows("SELECT detail FROM events")]
        left_out = [event for event in events if "groups" in event]
        assert [len(event["groups"]) for event in left_out] == [2, 2]
        assert any(event.get("alarm") == "skipped" for event in events)
