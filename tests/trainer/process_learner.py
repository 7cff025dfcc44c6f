"""One of the processes that train a learner together on eight simulated devices.

Usage: XLA_FLAGS=--xla_force_host_platform_device_count=N python process_learner.py RANK COUNT PORT
FOLDER. COUNT x N is 8. Each process writes FOLDER/RANK.json: the losses of three steps and, after a
checkpoint in FOLDER/checkpoints, of a fourth. The first also writes the weights after three steps,
to FOLDER/weights.npz.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from learner_inputs import forked_group
from tiny_model import TINY

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.model.execution import Execution
from patchgym.trainer.parallel import MeshConfig
from patchgym.trainer.parallel.layout import make_layout

BLOCK = 8
STEPS = 3
MESH = MeshConfig(fsdp=2, context=2, tensor=2)


def settings(mesh: MeshConfig) -> LearnerConfig:
    """The learner's, on `mesh`."""
    return LearnerConfig(row_tokens=(64,), length_normalizer=8, learning_rate=1e-3, mesh=mesh)


def batch(step: int) -> list[list[TrainSequence]]:
    """What `step` trains on, in whatever process."""
    random = np.random.default_rng(step)
    return [forked_group(random) for _ in range(3)]


def main(rank: int, count: int, port: int, folder: Path) -> dict[str, Any]:
    """Train, with the other processes if there are any."""
    if count > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=count, process_id=rank)
    execution = Execution(block=BLOCK, layout=make_layout(MESH))
    learner = Learner(settings(MESH), TINY, init_params(TINY, 0), execution=execution)
    store = CheckpointStore(folder / "checkpoints", keep=1)
    losses = []
    for step in range(STEPS):
        losses.append(learner.train(batch(step)).loss)
        store.save(learner, wait=step == 0)
    gathered = multihost_utils.process_allgather(learner.state.params, tiled=True)
    if rank == 0:
        np.savez(folder / "weights.npz", *jax.tree.leaves(gathered))
    losses.append(learner.train(batch(STEPS)).loss)
    store.wait()
    steps = store.steps()
    store.close()
    return {"losses": losses, "steps": steps, "devices": len(jax.local_devices())}


if __name__ == "__main__":
    rank, count, port, where = sys.argv[1:]
    found = main(int(rank), int(count), int(port), Path(where))
    Path(where, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
