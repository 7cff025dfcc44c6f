"""A training that is asked to stop with 64 rollouts in flight ends in order, whatever it does."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from typing import Any

import pytest
from chaos_runs import NAME, ChaosRun
from coin_runs import SLOW

from patchgym.trainer.ledger import LedgerReader

pytestmark = pytest.mark.slow

MANY: dict[str, dict[str, Any]] = {
    "run": {"stop_limit": 60.0},
    "environment": {"use": "coins.py:Slow"},
    "rollout": {"in_flight": 64, "max_turns": 4, "max_new_tokens": 8, "context_tokens": 256},
    "group": {"asynchronous": True, "per_step": 4},
}


def test_a_signal_ends_it_with_a_checkpoint_and_what_was_under_way_on_record(
    run: ChaosRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.prepare(MANY)
    run.add(SLOW.format(seconds=5))
    with run.training() as process:
        run.until(process, lambda: run.steps_made() > 1)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130, run.log.read_text()
        seconds = time.monotonic() - started
    said = run.log.read_text()
    assert f"stopped; go on with: patchgym train --resume {NAME}" in said
    with LedgerReader(run.run / "run.sqlite") as reader:
        (event,) = reader.rows("SELECT detail FROM events WHERE kind = 'stopping'")
        end = reader.meta("end")
        assert max(run.checkpoints()) == end["step"] == len(reader.steps())
    found = json.loads(event["detail"])
    assert sum(found["rollouts"].values()) >= 48  # of 64; some are between two rollouts
    assert (end["how"], end["stage"], end["kind"]) == ("stopped", "training", "signal")
    shown = run.command("runs", "show", NAME).stdout
    assert f"end             stopped after step {end['step']}: training: signal: " in shown
    run.finish(end["step"] + 1)
    run.check()
    with capsys.disabled():
        result = {
            "sigterm_seconds": round(seconds, 1),
            "in_flight": sum(found["rollouts"].values()),
        }
        sys.stdout.write(f"\nRESULT {json.dumps(result)}\n")


def test_it_ends_at_its_limit_although_the_disk_takes_nothing_and_says_how_to_go_on(
    run: ChaosRun,
) -> None:
    run.prepare({"run": {"stop_limit": 3.0}})
    with run.training() as process:
        run.until(process, lambda: len(run.checkpoints()) > 0)
        # Nobody else can write as long as this is open: what a stuck disk looks like.
        other = sqlite3.connect(run.run / "run.sqlite", isolation_level=None, timeout=60)
        other.execute("BEGIN IMMEDIATE")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130, run.log.read_text()
        other.execute("ROLLBACK")
        other.close()
    assert "not over 3 s after it was to end" in run.log.read_text()
    assert f"patchgym train --resume {NAME}" in run.log.read_text()
    run.check()
    run.finish(max(run.checkpoints()) + 2)
    run.check()


@pytest.mark.skipif("PATCHGYM_CHAOS_KILLS" not in os.environ, reason="make chaos runs it")
def test_the_clock_jumps_by_days_and_nothing_is_out_of_order(run: ChaosRun) -> None:
    library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
    if not os.path.exists(library):
        pytest.skip("libfaketime is not there: apt-get install faketime")
    clock = run.folder / "clock"
    clock.write_text("+0")
    run.environment |= {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
    with run.training() as process:
        for jump in ("+3d", "-2d", "+0"):
            run.go_on(process, 2)
            clock.write_text(jump)
        run.go_on(process, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 130, run.log.read_text()
    report = run.check()
    assert report["broken"] == 0


BROKEN = """
class Broken(Coins):
    async def score(self, task, trajectory):
        raise RuntimeError("the judge is ill")
"""


@pytest.mark.skipif("PATCHGYM_CHAOS_KILLS" not in os.environ, reason="make chaos runs it")
def test_a_run_that_fails_says_by_whom_in_its_ledger(run: ChaosRun) -> None:
    run.prepare({"environment": {"use": "coins.py:Broken"}})
    run.add(BROKEN)
    with run.training() as process:
        assert process.wait(240) == 1, run.log.read_text()
    end = run.summary()["end"]
    assert (end["how"], end["kind"]) == ("failed", "RunStopped")
    assert end["stage"] == "recording a rollout"
    assert "failed by scoring" in end["words"] and "the judge is ill" in end["words"]
    assert f"end             failed after step 0: {end['stage']}" in (
        run.command("runs", "show", NAME).stdout
    )
    run.check()
