"""A run that is killed twice goes on to the same losses and weights, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .resume_learner import EVERY, KILLED_CHECKPOINT, KILLED_STEP, SETTINGS, STEPS

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "resume_learner.py"


def run(folder: Path, *words: str) -> int:
    """Run the script on `folder`; its exit code. Programs are compiled once for all."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def lines(folder: Path) -> list[tuple[int, str]]:
    """Steps and their losses, in the order in which they were made."""
    text = (folder / "losses.txt").read_text(encoding="utf-8")
    pairs = (line.split() for line in text.splitlines())
    return [(int(step), loss) for step, loss in pairs]


def arrays(folder: Path) -> list[np.ndarray]:
    """Weights, optimizer and step after the last step."""
    with np.load(folder / "state.npz") as stored:
        return [stored[name] for name in stored.files]


@pytest.mark.parametrize("settings", SETTINGS)
def test_twenty_steps_are_bitwise_the_same_after_two_kills(tmp_path: Path, settings: str) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(whole, settings) == 0
    curve = dict(lines(whole))
    assert list(curve) == list(range(1, STEPS + 1))
    assert len(set(curve.values())) == STEPS, "a loss that never changes would prove nothing"

    assert run(killed, settings, "gradient") == -signal.SIGKILL
    made = lines(killed)
    assert made == [(step, curve[step]) for step in range(1, KILLED_STEP)]

    assert run(killed, settings, "checkpoint") == -signal.SIGKILL
    names = [path.name for path in (killed / "checkpoints").iterdir()]
    assert str(KILLED_CHECKPOINT) not in names
    assert any(name.startswith(f"{KILLED_CHECKPOINT}.") for name in names), "half written"

    assert run(killed, settings) == 0
    steps = [step for step, _ in lines(killed)]
    starts = [after for before, after in zip(steps, steps[1:], strict=False) if after != before + 1]
    assert len(starts) == 2, "each time some steps were made again"
    assert all(start % EVERY == 1 and start > 1 for start in starts)
    assert all(loss == curve[step] for step, loss in lines(killed))
    assert sorted(set(steps)) == list(curve)
    for ours, theirs in zip(arrays(killed), arrays(whole), strict=True):
        assert ours.tobytes() == theirs.tobytes()
