"""Waits that would never end do, by name."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from group_builders import book, member, take
from patchgym.agent import PolicyLoad
from patchgym.trainer.admission import Admission
from patchgym.trainer.config import RunConfig
from patchgym.trainer.errors import RunError, RunStopped
from patchgym.trainer.group import Group
from patchgym.trainer.group_queue import GroupQueue
from patchgym.trainer.idle import StageBoard
from patchgym.trainer.ledger import Ledger, record
from patchgym.trainer.progress import Progress
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.session_state import Session, opening_limit, stuck_limit
from patchgym.trainer.stopping import LastResort
from patchgym.trainer.supervision import Stuck, watch

pytestmark = pytest.mark.anyio


def group() -> Group:
    owner = book()
    items = [take(owner, 1), take(owner, 1)]
    owner.finish(items[0], member(items[0], 0.0))
    found = owner.finish(items[1], member(items[1], 1.0))
    assert isinstance(found, Group)
    return found


async def test_a_group_that_finds_no_room_names_the_learner() -> None:
    queue, whole = GroupQueue(1), group()
    await queue.put(whole)
    complaint = "group g00000 of .* waited 0 s for room among 1 groups: learner: training"
    with anyio.fail_after(10), pytest.raises(RunStopped, match=complaint):
        await queue.put(whole, timeout=0.1, culprit=lambda: "learner: training, step 3")
    assert len(queue) == 1 and queue.state(0).waiting == 0  # it left the line
    queue.take(1, last_chance=0)
    with anyio.fail_after(10):
        await queue.put(whole, timeout=5)


async def test_a_ledger_whose_disk_is_stuck_ends_the_wait_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "_STUCK", 0.5)
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        # Nobody else can write as long as this is open: what a stuck disk looks like.
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        ledger.event("one")
        complaint = r"run.sqlite: nothing was written for 0 s, 1 transactions wait: its disk is"
        with anyio.fail_after(20), pytest.raises(RunError, match=complaint):
            await ledger.flush()
        other.execute("ROLLBACK")
        other.close()
        with anyio.fail_after(20):
            await ledger.flush()  # it answers again


def test_whatever_the_load_the_first_slot_is_always_admitted() -> None:
    """Why `permits` needs no deadline: who waits for it waits for turns that have one."""
    chance, admission = random.Random(1), Admission(32)
    for preemptions in range(2000):
        load = PolicyLoad(
            preemptions=preemptions, cache_use=chance.random(), waiting=chance.randrange(3)
        )
        admission.follow(load, chance.randrange(33))
        assert 1 <= admission.limit <= 32


def session(folder: Path) -> Session:
    config, progress = RunConfig(), Progress(phase="preparing the sandbox image", done=2, total=9)
    last_resort: Any = LastResort(3600.0, lambda: "")
    return Session(config, RunFolder(folder), False, progress, last_resort)


async def test_an_opening_that_gets_nowhere_is_named_by_its_phase(tmp_path: Path) -> None:
    opened, told = session(tmp_path), list[str]()
    complaint = r"for 0 s: preparing the sandbox image \(2 of 9\)"
    with anyio.fail_after(20), pytest.raises(Stuck, match=complaint):
        await watch(
            opened.opens, opened.opening, 0.3, lambda: "", lambda words, _: told.append(words)
        )
    assert len(told) == 1


async def test_a_checkpoint_that_does_not_come_back_is_named_although_it_has_no_limit_of_its_own(
    tmp_path: Path,
) -> None:
    running: Any = session(tmp_path)
    running.began, running.progress.phase = True, "training"
    running.resources = SimpleNamespace(board=StageBoard(), learner=SimpleNamespace(step=6))
    with anyio.move_on_after(1.0) as scope:
        running.progress.learner = "waiting"  # which has a limit of its own
        await watch(running.moves, running.what, 0.2, lambda: "", lambda words, stacks: None)
    assert scope.cancelled_caught
    running.progress.learner = "checkpointing"
    complaint = "for 0 s: training: the learner was checkpointing; rollouts: none"
    with anyio.fail_after(20), pytest.raises(Stuck, match=complaint):
        await watch(running.moves, running.what, 0.2, lambda: "", lambda words, stacks: None)


async def test_an_opening_that_goes_on_or_is_over_is_never_stuck(tmp_path: Path) -> None:
    opened = session(tmp_path)
    with anyio.move_on_after(1.5) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                watch, opened.opens, opened.opening, 0.4, lambda: "", lambda words, stacks: None
            )
            for done in range(6):
                opened.progress.done = done
                await anyio.sleep(0.1)
            opened.began = True
            await anyio.sleep_forever()
    assert scope.cancelled_caught


def test_a_piece_of_work_has_more_time_than_any_wait_with_a_limit() -> None:
    config = RunConfig()
    rollout = config.rollout.seconds + 4 * config.scoring.deadline
    assert stuck_limit(config) >= max(2 * rollout, config.group.wait_limit)
    assert opening_limit(config) >= stuck_limit(config)
