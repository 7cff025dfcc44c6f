"""The main job on everything real, made small: train, stop by Ctrl-C, go on, look at the result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from patchgym.datasets.task import bundled_tasks, dump_tasks

pytestmark = [pytest.mark.docker, pytest.mark.model, pytest.mark.slow]
PATCHGYM = str(Path(sys.executable).with_name("patchgym"))
LIMIT = 900.0


def containers() -> set[str]:
    """Ids of the kit's containers that belong to a process that is gone."""
    done = subprocess.run(
        [PATCHGYM, "sandbox", "reap", "--json"], capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(done.stdout)
    return set(found)


class Job:
    """`patchgym train` in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.log = folder / "log"

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            return subprocess.Popen(
                [PATCHGYM, "train", *words],
                cwd=self.folder, env=self.environment, stdout=handle, stderr=handle,
            )  # fmt: skip
        finally:
            os.close(handle)

    def wait_for(self, text: str, process: subprocess.Popen[bytes]) -> None:
        """Return once the log holds `text`; fails when the process ends before."""
        deadline = time.monotonic() + LIMIT
        while text not in self.log.read_text():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue

    def summary(self) -> dict[str, Any]:
        done = subprocess.run(
            [PATCHGYM, "runs", "show", "latest", "--json"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        result: dict[str, Any] = json.loads(done.stdout)
        return result


def test_train_stop_and_go_on(
    tmp_path: Path, docker_image: str, weights: Path, clean_environment: dict[str, str]
) -> None:
    dump_tasks(bundled_tasks("train")[:12], tmp_path / "train.jsonl")
    dump_tasks(bundled_tasks("heldout")[:2], tmp_path / "heldout.jsonl")
    (tmp_path / "run.toml").write_text(
        '[run]\nsteps = 2\nname = "small"\n'
        '[tasks]\ntrain = "train.jsonl"\nheldout = "heldout.jsonl"\n'
        "[group]\nsize = 6\nper_step = 1\n[rollout]\nin_flight = 12\nmax_new_tokens = 32\n"
        "[sandbox]\nslots = 3\n[evaluation]\nsamples = 1\n[checkpoint]\nevery = 1\n"
    )
    job = Job(tmp_path, clean_environment)
    first = job.start("--config", "run.toml")
    job.wait_for("step 1/2", first)
    first.send_signal(signal.SIGINT)
    assert first.wait(LIMIT) == 130, job.log.read_text()
    assert "go on with: patchgym train --resume small" in job.log.read_text()
    assert containers() == set()
    stopped = job.summary()
    assert (stopped["state"], stopped["steps"]) == ("stopped", 1)
    assert "before" in stopped["heldout"]

    refused = job.start("--resume", "small", "--group.size", "4")
    assert refused.wait(LIMIT) == 2
    assert "group.size can't change from 6 to 4" in job.log.read_text()

    second = job.start("--resume", "small")
    assert second.wait(LIMIT) == 0, job.log.read_text()
    done = job.summary()
    check_finished(done)
    check_trajectory(job, done)


def check_finished(done: dict[str, Any]) -> None:
    """The contract of `runs show --json`, and that the numbers hang together."""
    assert (done["state"], done["steps"]) == ("finished", 2)
    for name in ("before", "after"):
        result = done["heldout"][name]
        low, high = result["interval"]
        assert result["samples"] == 2
        assert 0 <= low <= result["pass_rate"] <= high <= 1
    assert done["groups"]["states"]["committed"] == 2
    idle = done["learner"]["idle_share"]
    assert 0 <= idle <= 1
    assert sum(done["learner"]["idle_reasons"].values()) == pytest.approx(idle)
    assert done["outcomes"]["submitted"] > 0
    first = done["history"][0]
    assert first["applied"]
    # At staleness 0 sampler and learner hold the same weights: their log-probabilities agree.
    if first["staleness"] == {"0": 1}:
        assert first["mismatch_kl"] < 1e-3
    assert Path(done["curve"]).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def check_trajectory(job: Job, done: dict[str, Any]) -> None:
    """One rollout, turn by turn, for people and for programs."""
    show = [PATCHGYM, "runs", "show", "latest", "--trajectory", "before-000-s0"]
    text = subprocess.run(
        show, cwd=job.folder, env=job.environment, capture_output=True, text=True, check=True
    ).stdout
    assert "turn 1:" in text
    assert "observation (" in text
    assert "reward" in text
    record = json.loads(
        subprocess.run(
            [*show, "--json"], cwd=job.folder, env=job.environment, capture_output=True, check=True
        ).stdout
    )
    turns = record["trajectory"]["turns"]
    assert turns
    for turn in turns:
        completion = turn["completion"]
        assert len(completion["tokens"]) == len(completion["logprobs"]) > 0
        assert completion["policy_version"] == 0
