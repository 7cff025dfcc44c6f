"""Two processes train one learner over gloo; one device goes on from their checkpoint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_model import TINY

from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.learner import Learner
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.parallel import MeshConfig

from .process_learner import STEPS, batch, settings

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "process_learner.py"
DEADLINE = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What processes left behind."""

    folder: Path
    """With their checkpoints."""
    found: list[Any]
    """What each wrote."""

    @property
    def weights(self) -> list[np.ndarray]:
        """Weights after three steps."""
        with np.load(self.folder / "weights.npz") as stored:
            return [stored[name] for name in stored.files]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def train(folder: Path, count: int) -> Trained:
    """Run `count` processes of 8 / `count` devices; none outlives this call."""
    folder.mkdir()
    flags = f"--xla_force_host_platform_device_count={8 // count}"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XLA_FLAGS": f"{flags} --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
    }
    port = free_port()
    logs = [folder / f"{rank}.log" for rank in range(count)]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank, log in enumerate(logs):
            words = [str(rank), str(count), str(port), str(folder)]
            with log.open("wb") as out:
                started.append(
                    subprocess.Popen(
                        [sys.executable, str(SCRIPT), *words],
                        env=environment,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                    )
                )
        codes = [process.wait(timeout=DEADLINE) for process in started]
    finally:
        for process in started:
            process.kill()  # JAX waits for its peers at a SIGTERM
            process.wait()
    assert codes == [0] * count, "\n".join(log.read_text()[-3000:] for log in logs)
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    return Trained(folder=folder, found=found)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two processes of four devices."""
    return train(tmp_path_factory.mktemp("processes") / "two", 2)


def test_two_processes_train_what_one_trains(two: Trained, tmp_path: Path) -> None:
    """Measured: losses differ by 4e-8; the sums over devices are made in another order."""
    one = train(tmp_path / "one", 1)
    assert [each["devices"] for each in (*two.found, *one.found)] == [4, 4, 8]
    assert two.found[0]["losses"] == two.found[1]["losses"]
    np.testing.assert_allclose(two.found[0]["losses"], one.found[0]["losses"], atol=1e-6)
    for ours, theirs in zip(two.weights, one.weights, strict=True):
        # A step moves a weight by up to 1e-3, whichever sign a gradient near zero has.
        assert float(np.abs(ours - theirs).mean()) < 1e-6


def test_one_device_goes_on_from_the_checkpoint_of_two_processes(two: Trained) -> None:
    assert [each["steps"] for each in two.found] == [[STEPS], [STEPS]], "older ones were dropped"
    names = sorted(path.name for path in (two.folder / "checkpoints").iterdir())
    assert names == [str(STEPS)]
    learner = Learner(settings(MeshConfig()), TINY, init_params(TINY, 9))
    store = CheckpointStore(two.folder / "checkpoints")
    store.restore(learner)
    store.close()
    restored = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.params)]
    for ours, theirs in zip(restored, two.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    loss = learner.train(batch(STEPS)).loss
    assert loss == pytest.approx(two.found[0]["losses"][STEPS], abs=1e-6)
