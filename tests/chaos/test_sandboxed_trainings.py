"""A training on real sandboxes: containers, supervisors, the daemon and the trainer are shot."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from chaos_runs import NAME, ChaosRun, wait
from chaos_sandboxes import SANDBOXED
from docker_hosts import OwnDaemon, own_daemon

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.skipif("PATCHGYM_CHAOS_KILLS" not in os.environ, reason="make chaos runs it"),
]

SHOTS = 6
TYPED = {"solved", "submitted", "straggler", "sandbox_failed", "environment_failed"}
CHANGES: dict[str, dict[str, Any]] = {
    "environment": {"use": "coins.py:SandboxCoins"},
    "rollout": {"in_flight": 8},
    "failures": {"sandbox": 1.0, "environment": 1.0},
}


def docker(daemon: OwnDaemon, *words: str) -> list[str]:
    command = ["docker", "--host", daemon.url, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def shoot(daemon: OwnDaemon, chance: random.Random, *, supervisor: bool) -> None:
    """Kill a container, or the process that supervises it from inside."""
    there = docker(daemon, "ps", "-q")
    if not there:
        return
    victim = chance.choice(there)
    if not supervisor:
        docker(daemon, "kill", victim)
        return
    pids = docker(daemon, "inspect", "--format", "{{.State.Pid}}", victim)
    for pid in pids:
        if int(pid) > 1:
            os.kill(int(pid), signal.SIGKILL)


def test_whatever_is_shot_is_typed_and_nothing_is_left(run: ChaosRun, docker_image: str) -> None:
    # A short path: a unix socket's may have 104 characters.
    with TemporaryDirectory(prefix="d") as place, own_daemon(Path(place), docker_image) as daemon:
        chance = random.Random(7)
        settings = {"settings": {"top": 9, "image": docker_image}}
        run.prepare({**CHANGES, "environment": {**CHANGES["environment"], **settings}})
        text = SANDBOXED.format(arithmetic=str(run.root / "examples" / "arithmetic.py"))
        (run.folder / "coins.py").write_text(text)
        run.environment["DOCKER_HOST"] = daemon.url
        before = daemon.inventory()
        with run.training() as process:
            run.until(process, lambda: run.steps_made() > 0)
            for shot in range(SHOTS):
                shoot(daemon, chance, supervisor=shot % 2 == 1)
                run.go_on(process)
            process.send_signal(signal.SIGSTOP)
            wait(3)
            process.send_signal(signal.SIGCONT)
            daemon.stop()
            daemon.start()
            run.go_on(process, 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
        run.check()
        with run.training() as process:
            run.until(process, lambda: run.steps_made() > 1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 130, run.log.read_text()
        report = run.check()
        (containers,) = (each for each in report["invariants"] if each["name"] == "no container")
        assert containers["checked"] == 2
        assert daemon.inventory() == before
        outcomes = run.summary()["outcomes"]
        assert set(outcomes) <= TYPED and outcomes.get("sandbox_failed", 0) > 0, outcomes
        assert NAME in run.command("runs", "ls").stdout
