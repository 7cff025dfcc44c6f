"""The queue: bounded, fresh only, fair over tasks, and a wait that names its culprit."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from group_builders import TASKS, member
from patchgym.trainer.errors import RunStopped
from patchgym.trainer.group import Group, GroupBook, Member
from patchgym.trainer.group_queue import GroupQueue

pytestmark = pytest.mark.anyio


def group(number: int, version: int = 0, task: str = "t") -> Group:
    owner = GroupBook(lambda n: TASKS[n], size=2, seed=0, retries=0, first_number=number)
    members: list[Member] = []
    for total in (0.0, 1.0):
        item = owner.next_item(1)
        assert item is not None
        members.append(member(item, total, version=version))
    return Group(group_id=f"g{number:05d}", task_id=task, number=number, members=tuple(members))


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


async def test_those_who_wait_get_in_in_the_order_in_which_they_came() -> None:
    queue = GroupQueue(1)
    entered: list[int] = []

    async def produce(number: int) -> None:
        await queue.put(group(number))
        entered.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(produce, number)
            await checkpoint()
        assert queue.state(0).waiting == 4
        await take(queue, 1)
        # There is a place, and nobody was told yet: one that comes now is not let past the others.
        with anyio.move_on_after(0.01) as patience:
            await queue.put(group(9))
        assert patience.cancelled_caught
        while len(entered) < 5:
            await take(queue, 1)
            await checkpoint()
    assert entered == [0, 1, 2, 3, 4]
    assert [g.number for g in queue.peek()] == [4]


async def test_whoever_stops_waiting_leaves_the_line() -> None:
    queue = GroupQueue(1)
    await queue.put(group(0))
    with anyio.move_on_after(0.01):
        await queue.put(group(1))
    assert (queue.state(0).waiting, len(queue)) == (0, 1)
    await take(queue, 1)
    await queue.put(group(2))
    assert [g.number for g in queue.peek()] == [2]


async def test_tasks_take_turns_among_groups_of_one_version() -> None:
    queue = GroupQueue(20)
    for number in range(6):
        queue.put_now(group(number, 2, "flood"))
    queue.put_now(group(6, 2, "a"))
    queue.put_now(group(7, 2, "b"))
    queue.put_now(group(8, 2, "a"))
    queue.put_now(group(9, 1, "flood"))
    # The stalest first, whatever its task; then flood has just been served, and waits its turn.
    in_turn = [9, 6, 7, 0, 8, 1, 2, 3, 4, 5]
    assert [g.number for g in queue.peek()] == in_turn
    taken = [queue.take(2, last_chance=0) for _ in range(5)]
    assert [g.number for groups in taken for g in groups] == in_turn


async def test_a_task_that_was_served_long_ago_comes_before_one_served_lately() -> None:
    queue = GroupQueue(9)
    for number, task in enumerate("abab"):
        queue.put_now(group(number, 0, task))
    assert [g.task_id for g in queue.take(2, last_chance=0)] == ["a", "b"]
    assert [g.task_id for g in queue.take(1, last_chance=0)] == ["a"]
    queue.put_now(group(4, 0, "a"))
    queue.put_now(group(5, 0, "c"))
    assert [g.task_id for g in queue.peek()] == ["c", "b", "a"], "never, long ago, lately"


async def test_depth_and_age_are_told_without_changing_anything() -> None:
    now = 100.0
    queue = GroupQueue(30, clock=lambda: now)
    for number in range(20):
        now += 1.0
        queue.put_now(group(number, number // 5, f"t{number % 3}"))
    now += 1.0
    state = queue.state(version=4)
    # Ages 1 to 20 s and 4 to 1 versions, five groups each; nearest rank.
    assert (state.seconds.p50, state.seconds.p95, state.seconds.max) == (10.0, 19.0, 20.0)
    assert (state.versions.p50, state.versions.p95, state.versions.max) == (2, 4, 4)
    assert (state.depth, state.capacity, state.tasks, state.waiting) == (20, 30, 3, 0)
    assert queue.state(version=4) == state
    queue.evict(1, lambda g: None)
    queue.take(3, last_chance=0)
    state = queue.state(version=4)
    assert (state.depth, state.evicted, state.taken) == (12, 5, 3)
    empty = GroupQueue(1).state(0)
    assert (empty.depth, empty.seconds.max, empty.versions.p95) == (0, 0.0, 0.0)


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
