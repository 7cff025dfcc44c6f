"""Disks that take their time, and one that takes for ever."""

from __future__ import annotations

import os
import signal
import time

import pytest
from chaos_runs import NAME, ChaosRun
from slow_disk import SlowDisk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("PATCHGYM_CHAOS_KILLS" not in os.environ, reason="make chaos runs it"),
]

IMPATIENT = """
from patchgym.trainer.ledger import record
record._STUCK = 5.0
"""


def test_a_slow_disk_slows_a_run_and_breaks_nothing(run: ChaosRun) -> None:
    disk = SlowDisk(run.folder)
    run.environment |= disk.environment()
    with run.training() as process:
        run.until(process, lambda: run.steps_made() > 1)
        disk.takes(0.3)
        run.go_on(process, 6)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run.check()
    with run.training() as process:
        run.until(process, lambda: run.steps_made() > 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130, run.log.read_text()
    assert run.check()["broken"] == 0


def test_a_disk_that_answers_no_more_ends_the_run_by_name_and_it_goes_on_with_one_that_does(
    run: ChaosRun,
) -> None:
    disk = SlowDisk(run.folder)
    run.prepare({"run": {"stop_limit": 4.0}})
    run.add(IMPATIENT)
    run.environment |= disk.environment()
    with run.training() as process:
        run.until(process, lambda: bool(run.checkpoints()))
        disk.takes(3600)
        started = time.monotonic()
        assert process.wait(120) == 2, run.log.read_text()
        assert time.monotonic() - started < 60
    said = " ".join(run.log.read_text().split())
    assert "nothing was written for 5 s" in said and "its disk is stuck" in said, said
    assert f"patchgym train --resume {NAME}" in said
    disk.takes(0.0)
    run.check()
    run.finish(max(run.checkpoints()) + 2)
    assert run.check()["broken"] == 0
