"""A process that is to stop ends in order, at once when asked twice, and in any case in time."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ORDERLY = """
import sys, time, anyio
from patchgym.trainer.stopping import LastResort, watch_signals

last = LastResort(float(sys.argv[1]), lambda: "left in the middle of " + sys.argv[2])

async def main():
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as work:
            await group.start(watch_signals, work, last.arm)
            print("ready", flush=True)
            try:
                await anyio.sleep_forever()
            finally:
                if sys.argv[2] == "sleep":
                    time.sleep(600)     # nothing on the event loop can end this
                elif sys.argv[2] == "wait":
                    with anyio.CancelScope(shield=True):
                        print("cleaning up", flush=True)
                        await anyio.sleep(600)
                print("in order", flush=True)
        group.cancel_scope.cancel()
    last.disarm()

anyio.run(main)
"""


def start(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    script = tmp_path / "orderly.py"
    script.write_text(ORDERLY)
    process = subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_work_which_ends_in_order(
    tmp_path: Path, kind: signal.Signals
) -> None:
    with start(tmp_path, "60", "nothing") as process:
        process.send_signal(kind)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "in order\n", "")


def test_a_process_that_is_stuck_ends_at_its_limit_and_says_in_what(tmp_path: Path) -> None:
    with start(tmp_path, "0.5", "sleep") as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "patchgym: left in the middle of sleep\n")


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    with start(tmp_path, "600", "wait") as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "cleaning up\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
