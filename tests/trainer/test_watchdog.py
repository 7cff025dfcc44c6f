"""The watchdog tells what stands still, and only that."""

from __future__ import annotations

import anyio
import pytest

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
