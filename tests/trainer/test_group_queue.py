"""The queue: bounded, fresh only, and a wait that names its culprit."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from group_builders import TASKS, member
from patchgym.trainer.errors import RunStopped
from patchgym.trainer.group import Group, GroupBook, Member
from patchgym.trainer.group_queue import GroupQueue

pytestmark = pytest.mark.anyio


def group(number: int, version: int = 0) -> Group:
    owner = GroupBook(lambda n: TASKS[n], size=2, seed=0, retries=0, first_number=number)
    members: list[Member] = []
    for total in (0.0, 1.0):
        item = owner.next_item(1)
        assert item is not None
        members.append(member(item, total, version=version))
    return Group(group_id=f"g{number:05d}", task_id="t", number=number, members=tuple(members))


async def take(
    queue: GroupQueue, count: int, *, version: int = 0, max_staleness: int = 1
) -> list[Group]:
    stale: list[Group] = []
    await queue.enough(
        count,
        oldest=version - max_staleness,
        on_stale=stale.append,
        timeout=5.0,
        culprit=lambda: "nobody",
    )
    assert all(g.oldest_version < version - max_staleness for g in stale)
    return queue.take(count, last_chance=version + 1 - max_staleness)


async def test_groups_leave_in_their_order() -> None:
    queue = GroupQueue(3)
    for number in range(3):
        await queue.put(group(number))
    assert [g.number for g in await take(queue, 2)] == [0, 1]
    assert len(queue) == 1


async def test_a_full_queue_holds_the_producer_back() -> None:
    queue = GroupQueue(1)
    entered: list[int] = []

    async def produce() -> None:
        for number in range(2):
            await queue.put(group(number))
            entered.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(produce)
        for _ in range(5):
            await checkpoint()
        assert entered == [0]
        await take(queue, 1)
        await take(queue, 1)
    assert entered == [0, 1]


async def test_groups_that_grew_stale_in_the_queue_are_handed_back() -> None:
    queue = GroupQueue(4)
    for number, version in ((0, 1), (1, 3), (2, 2)):
        await queue.put(group(number, version))
    stale: list[Group] = []
    await queue.enough(2, oldest=2, on_stale=stale.append, timeout=5.0, culprit=str)
    assert [g.number for g in stale] == [0]
    assert [g.number for g in queue.take(2, last_chance=3)] == [2, 1], "the stalest first"


async def test_groups_that_would_be_too_stale_next_time_come_along() -> None:
    queue = GroupQueue(6)
    for number, version in ((0, 3), (1, 2), (2, 2), (3, 3), (4, 2)):
        await queue.put(group(number, version))
    taken = await take(queue, 2, version=3, max_staleness=1)
    assert [g.number for g in taken] == [1, 2, 4]
    assert len(queue) == 2


async def test_a_group_that_can_not_wait_goes_in_at_once() -> None:
    queue = GroupQueue(1)
    await queue.put(group(0))
    queue.put_now(group(1))
    assert len(queue) == 2


async def test_a_wait_past_its_limit_names_the_culprit() -> None:
    queue = GroupQueue(4)
    await queue.put(group(0))
    with pytest.raises(RunStopped, match=r"for 2 groups and has 1: g7-m1 in tests since 38 s"):
        await queue.enough(
            2,
            oldest=-1,
            on_stale=lambda g: None,
            timeout=0.01,
            culprit=lambda: "g7-m1 in tests since 38 s",
        )
