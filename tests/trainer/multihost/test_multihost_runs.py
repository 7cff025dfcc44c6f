"""`patchgym train` in two processes: what it trains, and what becomes of it when one is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from coin_runs import coin_run, patchgym
from process_runs import flags, free_port, running, slurm

pytestmark = pytest.mark.slow

START = ["--config", "run.toml", "--json"]
EXACT = ("loss", "grad_norm", "entropy", "mismatch_max")
"""Numbers of a step that say whether another did the same."""


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """A coin run for a learner on two devices, its steps strictly on-policy."""
    changes: dict[str, dict[str, Any]] = {
        "run": {"steps": 3},
        "learner": {"mesh": {"fsdp": 2}},
        "group": {"max_staleness": 0},
    }
    coin_run(root, tmp_path, changes)
    return tmp_path


def two(*first: str) -> list[list[str]]:
    """The words of two processes; the second one knows of the run what the first one tells it."""
    port = free_port()
    return [[*first, *flags(0, 2, port)], flags(1, 2, port)]


def numbers(steps: list[dict[str, Any]]) -> list[dict[str, float]]:
    return [{name: step[name] for name in EXACT} for step in steps]


def end_of(folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """How the run ended, as its ledger has it."""
    done = patchgym(folder, environment, "runs", "show", "latest", "--json")
    found: dict[str, Any] = json.loads(done.stdout)["end"]
    return found


def test_two_processes_train_as_one_with_their_devices(folder: Path) -> None:
    with running(folder, two(*START, "--run.name", "two"), devices=1) as together:
        assert together.codes() == [0, 0], together.said(0) + together.said(1)
        shared = together.steps()
        assert together.folder.joinpath("1.out").read_text() == ""
    with running(folder, [[*START, "--run.name", "one"]], devices=2) as alone:
        assert alone.codes() == [0], alone.said(0)
    assert len(shared) == 3
    # Two devices either way, and the same sums: equal to the bit where rollouts are.
    assert numbers(shared) == numbers(alone.steps())
    assert [step["grad_norm"] > 0 for step in shared] == [True] * 3


def test_a_run_that_was_stopped_goes_on(folder: Path, clean_environment: dict[str, str]) -> None:
    measured = ("--evaluation.samples", "1", "--evaluation.every", "1", "--checkpoint.every", "1")
    words = two(*START, "--run.steps", "50", *measured)
    with running(folder, words, devices=1) as together:
        together.until_step(2)
        for process in together.processes:  # a scheduler signals them all
            process.send_signal(signal.SIGTERM)
        assert together.codes() == [130, 0], together.said(0) + together.said(1)
        done = together.steps()[-1]["step"] + 1
    kept = [int(path.name) for path in (folder / "runs/coins/checkpoints").iterdir()]
    assert max(kept) == done
    last = str(done + 2)
    again = ["--resume", "latest", "--run.steps", last, "--json", "--processes", "auto"]
    told = [slurm(index, 2) for index in range(2)]
    with running(folder, [again, again], devices=1, environments=told) as together:
        assert together.codes() == [0, 0], together.said(0) + together.said(1)
        assert [step["step"] for step in together.steps()] == [done, done + 1]
    checked = patchgym(folder, clean_environment, "runs", "check", "latest", "--json")
    assert (checked.returncode, json.loads(checked.stdout)["broken"]) == (0, 0)


def test_the_loss_of_a_process_ends_the_others_by_name(
    folder: Path, clean_environment: dict[str, str]
) -> None:
    words = two(*START, "--run.steps", "50", "--learner.lora.rank", "4")
    with running(folder, words, devices=1) as together:
        together.until_step(1)
        lost = together.processes[1]
        lost.kill()
        assert together.codes(120.0) == [2, -signal.SIGKILL]
        said = together.said(0)
        assert f"process 1 of the learner ({os.uname().nodename}, pid {lost.pid}) is gone" in said
        assert "--resume" in said
    end = end_of(folder, clean_environment)
    assert (end["how"], end["kind"]) == ("failed", "HostLost")
    words = two("--resume", "latest", "--json")
    with running(folder, words, devices=1) as together:
        together.until_step(1)
        together.processes[0].kill()
        assert together.codes(60.0) == [-signal.SIGKILL, 2]
        assert "process 0 of the learner is gone" in together.said(1)


def test_a_mesh_of_other_devices_is_refused(folder: Path) -> None:
    with running(folder, two(*START, "--learner.mesh.fsdp", "4"), devices=1) as together:
        assert together.codes() == [2, 0]
        assert "which are 4 devices; the 2 processes have 2 together" in together.said(0)
    left = folder / "runs"
    assert not left.exists() or list(left.iterdir()) == []


def test_the_help_names_the_flags(clean_environment: dict[str, str], folder: Path) -> None:
    done: subprocess.CompletedProcess[str] = patchgym(folder, clean_environment, "train", "--help")
    for flag in ("--processes N|auto", "--process I", "--coordinator HOST:PORT"):
        assert flag in done.stdout
