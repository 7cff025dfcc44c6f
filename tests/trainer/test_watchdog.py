"""The watchdog tells what stands still, and only that."""

from __future__ import annotations

import anyio
import pytest

from patchgym.trainer.idle import Flying, wait_line
from patchgym.trainer.watchdog import Watchdog

pytestmark = pytest.mark.anyio


async def test_it_reports_what_stands_still_with_stacks() -> None:
    told: list[tuple[float, str]] = []
    dog = Watchdog(
        lambda: 0,
        lambda: "g00001-m0 in tool bash",
        lambda seconds, text: told.append((seconds, text)),
        limit=0.2,
    )
    with anyio.move_on_after(0.75):
        await dog.run()
    assert 2 <= len(told) <= 3
    assert dog.stalls == len(told)
    assert told[0][0] >= 0.2
    assert told[0][1].startswith("g00001-m0 in tool bash\n")
    assert "test_watchdog.py" in told[0][1], "the stack of this very test"


async def test_it_is_silent_while_anything_moves() -> None:
    told: list[str] = []
    moves = iter(range(10**6))
    dog = Watchdog(
        lambda: next(moves), lambda: "", lambda seconds, text: told.append(text), limit=0.1
    )
    with anyio.move_on_after(0.5):
        await dog.run()
    assert told == []


def test_a_wait_names_task_stage_since_when_and_sandbox_the_longest_first() -> None:
    flying = [
        Flying(task_id="b", stage="sampling", seconds=4.4),
        Flying(task_id="a", stage="tool run_tests", seconds=11, sandbox="0c11"),
        Flying(task_id="a", stage="tool run_tests", seconds=38, sandbox="7f3a"),
        Flying(task_id="a", stage="sampling", seconds=2),
    ]
    assert wait_line("waiting", 41.2, flying, most=2) == (
        "learner waits 41 s for groups: 2 rollouts of a in tool run_tests since 38 s "
        "(sandbox 7f3a, 0c11); 1 rollout of b in sampling since 4 s; and 1 more"
    )
    assert wait_line("publishing", 7, []) == "learner publishing since 7 s: no rollout in flight"
