"""Who looks at a run sees whether its owner is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from patchgym.sandbox.reaper import current_owner
from patchgym.trainer.heartbeat import beat, heartbeat_path, pulse, state_now
from patchgym.trainer.run_folder import RunFolder

NOON = time.mktime((2026, 3, 1, 12, 3, 0, 0, 0, -1))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def leave(folder: RunFolder, at: float, **changes: object) -> None:
    """The sign of life of an owner like this process but for `changes`."""
    owner = replace(current_owner(), **changes)  # type: ignore[arg-type]
    path = heartbeat_path(folder)
    path.write_text(json.dumps(owner.labels()))
    os.utime(path, (at, at))


async def test_a_run_that_beats_is_running(folder: RunFolder) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(beat, folder)
        with anyio.fail_after(30):
            while not heartbeat_path(folder).exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    found = pulse(folder)
    assert found is not None and found.owner == current_owner()
    assert state_now(folder, "running") == "running"
    assert state_now(folder, "finished") == "finished"
    assert not list(folder.path.glob("*.partial"))


def test_a_killed_owner_is_gone_since_its_last_beat(folder: RunFolder) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    leave(folder, NOON, pid=process.pid, started="1")
    assert state_now(folder, "running", NOON + 60) == "gone since 12:03"
    assert state_now(folder, "running", NOON + 86400) == "gone since 2026-03-01 12:03"


def test_a_live_owner_that_does_not_come_round_is_silent(folder: RunFolder) -> None:
    leave(folder, NOON)
    assert state_now(folder, "running", NOON + 10) == "running"
    assert state_now(folder, "running", NOON + 60) == f"silent since 12:03 (process {os.getpid()})"


def test_an_owner_on_another_machine_is_never_called_gone(folder: RunFolder) -> None:
    leave(folder, NOON, host="elsewhere", boot="another", pid=17)
    words = "silent since 12:03 (process 17 on elsewhere)"
    assert state_now(folder, "running", NOON + 60) == words


@pytest.mark.parametrize("text", ["", "[]", "{}", "no JSON"])
def test_a_file_that_says_nothing_is_no_sign(folder: RunFolder, text: str) -> None:
    heartbeat_path(folder).write_text(text)
    assert pulse(folder) is None
    assert state_now(folder, "running") == "running"
