"""Twenty steps of a learner with checkpoints, killed where it is told to be.

Usage: python resume_learner.py FOLDER SETTINGS [MOMENT]. Goes on from the newest checkpoint in
FOLDER, if there is one. Appends a line to FOLDER/losses.txt for each step: its number, and its loss
in hexadecimal digits. Writes the state after the last step to FOLDER/state.npz. MOMENT is
`gradient` (of step 11, its first row done) or `checkpoint` (of step 15, all but its name written):
there the process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from learner_inputs import forked_group, tiny_learner

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.learner import Learner
from patchgym.trainer.lora import LoraConfig

STEPS, EVERY = 20, 3
KILLED_STEP, KILLED_CHECKPOINT = 11, 15
SETTINGS: dict[str, dict[str, Any]] = {
    "full": {"warmup_steps": 15, "first_moment": "bfloat16"},
    "lora": {"lora": LoraConfig(rank=4), "loss": "ppo", "updates": 2, "kl_coefficient": 0.05},
}
"""By a name for people: all weights in a warm-up; adapters beside what they are held to."""


def batch(step: int) -> list[list[TrainSequence]]:
    """What the step after `step` trains on."""
    random = np.random.default_rng(step)
    return [forked_group(random) for _ in range(2 + step % 3)]


def die() -> None:
    """End at once, as if the machine had."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_row(number: int) -> Callable[[], bool]:
    """For `should_stop`, which is asked before each row."""
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        if asked == number:
            die()
        return False

    return should_stop


def die_when_named(name: str) -> None:
    """Die when a file or folder is about to be renamed to `name`."""

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and Path(os.fsdecode(arguments[1])).name == name:
            die()

    sys.addaudithook(watch)


def train(folder: Path, settings: str, moment: str = "") -> Learner:
    """Train to the last step."""
    learner = tiny_learner(learning_rate=1e-2, **SETTINGS[settings])
    store = CheckpointStore(folder / "checkpoints")
    store.restore(learner)
    if moment == "checkpoint":
        die_when_named(str(KILLED_CHECKPOINT))
    while learner.step < STEPS:
        step = learner.step
        killed = moment == "gradient" and step + 1 == KILLED_STEP
        stop = die_in_row(2) if killed else bool
        report = learner.train(batch(step), should_stop=stop)
        with (folder / "losses.txt").open("a", encoding="utf-8") as losses:
            losses.write(f"{step + 1} {report.loss.hex()}\n")
        if learner.step % EVERY == 0:
            store.save(learner, wait=False)
    store.close()
    return learner


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(exist_ok=True)
    trained = train(where, *sys.argv[2:])
    np.savez(where / "state.npz", *(np.asarray(x) for x in jax.tree.leaves(trained.state)))
