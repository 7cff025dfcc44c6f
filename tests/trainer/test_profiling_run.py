"""Captures of a real training that needs neither a sandbox nor the pretrained weights."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from coin_runs import PATCHGYM, SLOW, coin_run, patchgym

pytestmark = pytest.mark.slow

CHANGES: dict[str, dict[str, Any]] = {
    "run": {"steps": 1_000_000},
    "checkpoint": {"every": 20},
    "environment": {"use": "coins.py:Slow"},
    "profile": {"seconds": 1, "on_wait": 0.0001, "automatic": 1},
}


class Training:
    """`patchgym train` in a folder of its own."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.folder, self.process, self.log = folder, process, log

    def until(self, true: Callable[[], bool]) -> None:
        """Return once `true` is; fails when the training ends before."""
        while not true():
            assert self.process.poll() is None, self.log.read_text()
            threading.Event().wait(0.1)

    def captures(self) -> list[dict[str, Any]]:
        """Records of the captures that are there."""
        found = self.folder.glob("runs/coins/profile/[0-9]*/capture.json")
        return [json.loads(path.read_text()) for path in found]


@contextmanager
def training(root: Path, folder: Path, environment: dict[str, str]) -> Iterator[Training]:
    coin_run(root, folder, CHANGES)
    with (folder / "coins.py").open("a") as file:
        file.write(SLOW.format(seconds=2))
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PATCHGYM, "train", "--config", "run.toml"],
            cwd=folder, env=environment, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield Training(folder, process, log)
    finally:
        process.kill()
        process.wait()


def profile(
    run: Training, environment: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    return patchgym(run.folder, environment, "runs", "profile", "coins", *words)


def test_a_training_is_looked_at_by_command_by_signal_and_by_itself(
    root: Path, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    with training(root, tmp_path, clean_environment) as run:
        run.until(lambda: len(run.captures()) == 1)  # the learner waited for its first groups
        assert run.captures()[0]["why"] == "wait"
        assert run.captures()[0]["waited"].startswith("learner waits ")
        run.until(lambda: "step 2/" in run.log.read_text())

        asked = patchgym(
            run.folder, clean_environment, "runs", "profile", "coins", "--seconds", "6", "--json"
        )
        assert asked.returncode == 0, asked.stderr
        record = json.loads(asked.stdout)
        assert record["why"] == "asked" and record["step"] >= 2
        with gzip.open(Path(record["path"]) / record["trace"]) as file:
            shown = json.load(file)["traceEvents"]
        assert {"train", "wait", "publish"} <= {event.get("name") for event in shown}
        steps = [int(e["args"]["step_num"]) for e in shown if e.get("name") == "train"]
        assert min(steps) >= record["step"]

        run.process.send_signal(signal.SIGUSR1)
        run.until(lambda: len(run.captures()) == 3)
        assert sorted(one["why"] for one in run.captures()) == ["asked", "signal", "wait"]

        words = patchgym(
            run.folder, clean_environment, "runs", "profile", "coins", "--seconds", "1"
        )
        assert words.returncode == 0, words.stderr
        assert "xprof" in words.stdout and "Perfetto" in words.stdout

        run.process.send_signal(signal.SIGINT)
        assert run.process.wait() == 130, run.log.read_text()
        late = profile(run, clean_environment)
        assert late.returncode == 2
        assert "patchgym train --resume coins" in late.stderr.splitlines()[-1]
    check_checkpoints(tmp_path / "runs" / "coins" / "checkpoints")


def check_checkpoints(folder: Path) -> None:
    """The newest one, and the best of those that were measured."""
    values = {
        int(path.name): json.loads((path / "metadata" / "metadata").read_text()).get("value")
        for path in folder.iterdir()
    }
    assert 1 <= len(values) <= 2
    assert any(values.values())
    assert os.path.exists(folder / str(max(values)) / "files.json")
