"""The limit on rollouts under way follows the sampler's load."""

from __future__ import annotations

import anyio
import pytest

from patchgym.agent import PolicyLoad
from patchgym.trainer.admission import SETTLE, Admission


def test_a_preemption_lowers_the_limit_and_quiet_raises_it_again() -> None:
    admission = Admission(30)
    admission.follow(PolicyLoad(preemptions=5), 30)
    assert admission.limit == 30, "preemptions from before the run say nothing"
    admission.follow(PolicyLoad(preemptions=6), 30)
    assert (admission.limit, admission.decreases) == (20, 1)
    for _ in range(SETTLE):
        admission.follow(PolicyLoad(preemptions=9), 20)
    assert admission.limit == 20, "what was cancelled frees its memory first"
    for _ in range(30):
        admission.follow(PolicyLoad(preemptions=9, cache_use=0.5), 20)
    assert admission.limit == 30


def test_full_memory_is_overload_only_with_turns_in_line() -> None:
    admission = Admission(30)
    admission.follow(PolicyLoad(cache_use=0.99), 30)
    assert admission.limit == 30
    admission.follow(PolicyLoad(cache_use=0.99, waiting=3), 30)
    assert admission.limit == 20


def test_the_limit_falls_from_what_is_under_way_and_never_below_the_least() -> None:
    admission = Admission(100, least=4)
    admission.follow(PolicyLoad(cache_use=1.0, waiting=1), 9)
    assert admission.limit == 6
    for _ in range(5 * (SETTLE + 1)):
        admission.follow(PolicyLoad(cache_use=1.0, waiting=1), 1)
    assert admission.limit == 4


@pytest.mark.anyio
async def test_slots_past_the_limit_wait() -> None:
    admission = Admission(3)
    admission.follow(PolicyLoad(cache_use=1.0, waiting=1), 3)
    assert admission.limit == 2
    passed: list[int] = []

    async def slot(number: int) -> None:
        await admission.permits(number)
        passed.append(number)

    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(slot, number)
        await anyio.wait_all_tasks_blocked()
        assert passed == [0, 1]
        for _ in range(SETTLE + 1):
            admission.follow(PolicyLoad(), 2)
    assert passed == [0, 1, 2]
