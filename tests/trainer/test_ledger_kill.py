"""A writer that is killed, really: what is on disk is a beginning, cut between transactions."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patchgym.trainer.ledger import Ledger, LedgerReader

# Says after each step which updates are on disk for sure; between these nothing waits for a disk.
WRITER = """
import sys, anyio
from pathlib import Path
from patchgym.trainer.ledger import Ledger

async def main(path, first):
    async with Ledger(path) as ledger:
        ledger.restore(first)
        for step in range(first, 100000):
            for place in range(3):
                number = 3 * step + place
                name = f"g{number:05d}"
                ledger.group(name, "t", number, "pending")
                ledger.group(name, "t", number, "ready", members=[name], version=step)
                ledger.group(name, "t", number, "taken", step=step)
            with ledger.transaction():
                for place in range(3):
                    number = 3 * step + place
                    ledger.group(f"g{number:05d}", "t", number, "committed", step=step)
                ledger.step(step, {"step": step, "words": "x" * 300})
            if step % 3 == 0:
                await ledger.flush()
                print(step, flush=True)

anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
"""


def on_disk(path: Path, promised: int) -> int:
    """Check what a killed writer left; how many updates that is."""
    with LedgerReader(path) as reader:
        steps = [row["step"] for row in reader.steps()]
        groups = reader.rows("SELECT number, state, step FROM groups ORDER BY number")
    assert steps == list(range(len(steps)))
    assert len(steps) > promised, "what was flushed is there"
    committed = [row["number"] for row in groups if row["state"] == "committed"]
    assert committed == list(range(3 * len(steps))), "an update is there with all its groups"
    assert all(row["step"] == row["number"] // 3 for row in groups if row["step"] is not None)
    numbers = [row["number"] for row in groups]
    assert numbers == list(range(len(numbers))), "nothing is there without what came before it"
    assert len(numbers) <= 3 * len(steps) + 3
    return len(steps)


def write_and_kill(path: Path, first: int, lines: int) -> int:
    """Have a process write from the update `first` on, and kill it after so many `lines` that it
    said; the last update that it promised."""
    words = [sys.executable, "-c", WRITER, str(path), str(first)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
    return int(said[-1])


@pytest.mark.parametrize("seed", range(2))
async def test_a_kill_leaves_a_beginning_cut_between_two_transactions(
    tmp_path: Path, seed: int
) -> None:
    path, draw, known = tmp_path / "run.sqlite", random.Random(seed), 0
    for _ in range(3):
        promised = write_and_kill(path, known, draw.randrange(1, 15))
        known = on_disk(path, promised)
        # The next writer goes on from there: the ones that were under way are opened anew.
        async with Ledger(path) as ledger:
            ledger.record("DELETE FROM groups WHERE state != 'committed'")
    with LedgerReader(path) as reader:
        restores = [
            json.loads(row["detail"])
            for row in reader.rows("SELECT detail FROM events WHERE kind = 'restored'")
        ]
        assert all(each["step"] == each["known"] for each in restores)
