"""A ledger on a bad disk, or what is left of one: found, named, and not made worse."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from group_builders import book, member, take
from patchgym.trainer.errors import RunError
from patchgym.trainer.failures import FailureBudgets
from patchgym.trainer.ledger import Ledger, LedgerReader, backup_path
from patchgym.trainer.recorder import Recorder
from patchgym.trainer.trajectory_store import StoredRollout, TrajectoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Change a file system while it is in use."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def fill_up(path: Path) -> None:
    """Leave no space where `path` is."""
    with pytest.raises(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def half_written(folder: Path) -> list[Path]:
    """What writers that did not come to their end left."""
    return list(folder.rglob("*.partial"))


async def filled(path: Path, steps: int = 200) -> None:
    """A ledger of some pages."""
    async with Ledger(path) as ledger:
        for step in range(steps):
            ledger.step(step, {"reward": 0.5, "words": "x" * 200})


def files(folder: Path) -> dict[str, bytes]:
    """All that lies there, without SQLite's shared memory."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith("-shm")}


async def test_a_damaged_page_is_found_when_it_is_opened_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    await filled(path)
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(bytes(data))
    before = files(tmp_path)
    with pytest.raises(RunError, match=r"run\.sqlite: damaged: .*sqlite3 run\.sqlite \.recover"):
        async with Ledger(path):
            pass
    with pytest.raises(RunError, match=r"run\.sqlite: damaged"), LedgerReader(path) as reader:
        reader.steps()
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert not any(after[name] for name in after.keys() - before.keys())


async def test_a_file_that_was_cut_off_is_found(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    await filled(path)
    os.truncate(path, 3 * 4096)
    with pytest.raises(RunError, match=r"run\.sqlite: damaged"):
        async with Ledger(path):
            pass
    assert path.stat().st_size == 3 * 4096


async def test_a_backup_is_whole_and_named_where_the_ledger_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    async with Ledger(path) as ledger:
        ledger.step(0, {"reward": 0.5})
        assert await ledger.backup() == backup_path(path)
        ledger.step(1, {"reward": 0.75})
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(RunError, match=r"run\.sqlite\.backup is whole and of 20\d\d-.*copy"):
        async with Ledger(path):
            pass
    # What the message says to do.
    for name in ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(backup_path(path), path)
    async with Ledger(path) as ledger:
        ledger.restore(1)
        with pytest.raises(RunError, match="the checkpoint is of step 2, and the ledger ends at"):
            ledger.restore(2)
    with LedgerReader(path) as reader:
        assert [row["step"] for row in reader.steps()] == [0]


async def test_a_backup_is_not_made_so_often_that_it_costs(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "run.sqlite") as ledger:
        assert await ledger.backup() is not None
        ledger._backed_up = (ledger._backed_up[0], 3600.0)  # as if the last had taken an hour
        assert await ledger.backup() is None


@pytest.mark.parametrize("share", [0.0, 0.5, 0.75])
async def test_a_log_that_is_lost_or_cut_off_leaves_a_beginning_and_the_resume_sees_it(
    tmp_path: Path, share: float
) -> None:
    """The last writes of a machine that went down."""
    path, copy = tmp_path / "run.sqlite", tmp_path / "copy"
    copy.mkdir()
    async with Ledger(path) as ledger:
        for step in range(20):
            ledger.step(step, {})
            await ledger.flush()
        shutil.copy(path, copy)
        log = (tmp_path / "run.sqlite-wal").read_bytes()
    (copy / "run.sqlite-wal").write_bytes(log[: int(share * len(log))])
    async with Ledger(copy / "run.sqlite") as ledger:
        with pytest.raises(RunError, match=r"is of step 20, .*ends at step \d+: .*-wal .* back"):
            ledger.restore(20)
    with LedgerReader(copy / "run.sqlite") as reader:
        known = [row["step"] for row in reader.steps()]
    assert known == list(range(len(known)))
    assert (len(known) > 5) == (share > 0)


async def test_a_full_disk_ends_the_run_with_its_name_and_keeps_what_was_written(
    small_disk: Path,
) -> None:
    path = small_disk / "run.sqlite"
    with pytest.raises(RunError, match=r"run\.sqlite: can't be written: .*full; free space"):
        async with Ledger(path) as ledger:
            for step in range(10_000):
                ledger.step(step, {"words": "x" * 1000})
                await ledger.flush()
    with LedgerReader(path) as reader:
        known = [row["step"] for row in reader.steps()]
    assert known == list(range(len(known))) and len(known) > 10
    # With space again the run goes on.
    remount(small_disk, "size=4m")
    async with Ledger(path) as ledger:
        ledger.restore(len(known))
        ledger.step(len(known), {})
    with LedgerReader(path) as reader:
        assert len(reader.steps()) == len(known) + 1


async def test_a_rollout_that_finds_no_space_leaves_nothing_half_written(small_disk: Path) -> None:
    item = take(book(), 1)
    acted = member(item, 1.0)
    store = TrajectoryStore(small_disk / "trajectories")
    async with Ledger(small_disk / "run.sqlite") as ledger:
        recorder = Recorder(ledger, store, FailureBudgets())
        await recorder.rollout("train", item, acted.trajectory, acted.reward)
        await ledger.flush()
        space = small_disk / "space"
        fill_up(space)
        other = take(book(), 1)
        again = member(other, 0.0)
        with pytest.raises(RunError, match=r"\.rollout: can't be written: No space left on device"):
            await recorder.rollout("train", other, again.trajectory, again.reward)
        space.unlink()
    kept = store.read(item.rollout_id)
    assert (kept.trajectory, kept.reward) == (acted.trajectory, acted.reward)
    assert not half_written(small_disk)


async def test_a_read_only_disk_can_be_read_and_says_so_when_written(small_disk: Path) -> None:
    path = small_disk / "run.sqlite"
    await filled(path, 3)
    remount(small_disk, "ro")
    with LedgerReader(path) as reader:
        assert len(reader.steps()) == 3
    with pytest.raises(RunError, match=r"run\.sqlite: can't be written: .*disk is read-only"):
        async with Ledger(path) as ledger:
            ledger.step(3, {})
    item = take(book(), 1)
    acted = member(item, 1.0)
    store = TrajectoryStore(small_disk / "trajectories")
    with pytest.raises(RunError, match=r"can't be written: Read-only file system"):
        store.write(StoredRollout(trajectory=acted.trajectory, reward=acted.reward))


async def test_a_folder_that_vanishes_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    item = take(book(), 1)
    acted = member(item, 1.0)
    with pytest.raises(RunError, match=r"run\.sqlite: can't be written: .*run is gone"):
        async with Ledger(run / "run.sqlite") as ledger:
            recorder = Recorder(ledger, TrajectoryStore(run / "trajectories"), FailureBudgets())
            await recorder.rollout("train", item, acted.trajectory, acted.reward)
            await ledger.flush()
            shutil.rmtree(run)
            with pytest.raises(RunError, match=r"\.rollout: can't be written: .*run is gone"):
                await recorder.rollout("train", item, acted.trajectory, acted.reward)
            ledger.meta("state", "running")
            await ledger.flush()
    assert not run.exists(), "nothing is made anew where the run was"
