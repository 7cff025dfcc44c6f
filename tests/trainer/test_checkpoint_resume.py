"""What a resumed run goes on from: the checkpoint, and what the ledger says beside it.

parameters, optimizer, step, policy_version    in the checkpoint (test_checkpoint.py: bitwise)
queue, its cursor, groups under way            `restore_groups`, of the ledger and the step
random streams                                 functions of (seed, group, member, attempt)
order of the tasks                             a function of the seed and the groups so far
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from group_builders import TASKS, member
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.group import Group, GroupBook, WorkItem
from patchgym.trainer.ledger import Ledger
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.resume import restore_groups
from patchgym.trainer.task_sets import RevisitOrder
from patchgym.trainer.trajectory_store import TrajectoryStore

SIZE, SEED, MANY = 2, 11, 1 << 30


def order() -> RevisitOrder:
    return RevisitOrder(TASKS, SEED, 0.5)


def book(tasks: RevisitOrder, **resumed: object) -> GroupBook:
    return GroupBook(tasks, size=SIZE, seed=SEED, retries=1, **resumed)  # type: ignore[arg-type]


def items(owner: GroupBook) -> Iterator[WorkItem]:
    """What is rolled out next, for ever."""
    while True:
        item = owner.next_item(MANY)
        assert item is not None
        yield item


async def roll_out(
    owner: GroupBook, tasks: RevisitOrder, recorder: Recorder, ledger: Ledger, version: int
) -> Group | None:
    """One group from its opening to its end; every third has no spread."""
    rollouts = items(owner)
    item, result = next(rollouts), None
    for index in range(SIZE):
        item = next(rollouts) if index else item
        ledger.group(item.group_id, item.task.id, item.number, "pending")
        back = member(item, float(index and item.number % 3 != 0), version=version)
        await recorder.rollout("train", item, back.trajectory, back.reward)
        result = owner.finish(item, back)
    group = result if isinstance(result, Group) else None
    tasks.learn(item.task.id, spread=group is not None)
    if group is None:
        ledger.group(item.group_id, item.task.id, item.number, "dropped", reason="no_spread")
    else:
        recorder.group(group, "ready")
    return group


@pytest.mark.anyio
async def test_a_resumed_run_has_the_queue_the_streams_and_the_order_of_one_that_went_on(
    tmp_path: Path,
) -> None:
    store = TrajectoryStore(tmp_path / "trajectories")
    tasks = order()
    owner = book(tasks)
    whole: list[Group] = []
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        recorder = Recorder(ledger, store, FailureBudgets())
        for number in range(12):
            # Groups from number 8 on were sampled by weights that no checkpoint has.
            group = await roll_out(owner, tasks, recorder, ledger, version=2 if number > 7 else 0)
            whole += [group] if group else []
        for step, group in enumerate(whole[:4]):
            recorder.group(group, "taken", step=step)
            recorder.commit([group], step, {}, {})
        under_way = [next(items(owner)) for _ in range(2 * SIZE)]
        for item in under_way:
            ledger.group(item.group_id, item.task.id, item.number, "pending")
    later = items(owner)
    went_on = [next(later) for _ in range(6 * SIZE)]

    # The checkpoint is of step 1: three of the four updates are lost.
    restored = restore_groups(tmp_path / "run.sqlite", store, 1)
    assert restored.committed == 1
    old = [group for group in whole[1:] if group.number <= 7]
    assert list(restored.ready) == old
    lost = [group.number for group in whole if group.number > 7]
    assert list(restored.reopen) == sorted({*lost, *(item.number for item in under_way)})

    resumed = order()
    resumed.replay(restored.visits)
    again = items(
        book(
            resumed,
            reopen=restored.reopen,
            first_number=restored.next_number,
            already=restored.committed + len(restored.ready),
        )
    )
    reopened = [next(again) for _ in range(SIZE * len(restored.reopen))]
    # The same rollouts: the same tasks, on the same random streams.
    assert reopened[-len(under_way) :] == under_way
    assert [item.number for item in reopened[::SIZE]] == list(restored.reopen)
    by_number = {group.number: group.task_id for group in whole}
    assert [item.task.id for item in reopened[: SIZE * len(lost) : SIZE]] == [
        by_number[number] for number in lost
    ]
    assert [next(again) for _ in range(6 * SIZE)] == went_on
