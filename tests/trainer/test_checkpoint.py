"""Checkpoints: going on is bit-identical, nothing is half written, a full disk is one line."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
import pytest
from learner_inputs import forked_group, tiny_learner

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.checkpoint import CheckpointError, CheckpointStore
from patchgym.trainer.errors import UserError
from patchgym.trainer.learner import Learner

# Orbax closes its writers' event loop when one of them fails; what the others then report too late
# goes to nobody, and is nothing that we could wait for.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _groups(step: int) -> list[list[TrainSequence]]:
    return [forked_group(np.random.default_rng(step))]


def _same(first: Learner, second: Learner) -> bool:
    pairs = zip(jax.tree.leaves(first.state), jax.tree.leaves(second.state), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("wait", [True, False])
def test_a_restored_learner_goes_on_bit_by_bit(tmp_path: Path, wait: bool) -> None:
    learner = tiny_learner(warmup_steps=3)
    store = CheckpointStore(tmp_path / "checkpoints")
    learner.train(_groups(0))
    store.save(learner, metadata={"note": "mid-warm-up"}, wait=wait)
    learner.train(_groups(1))
    learner.train(_groups(2))
    store.close()

    again = tiny_learner(seed=9, warmup_steps=3)
    reopened = CheckpointStore(tmp_path / "checkpoints")
    metadata = reopened.restore(again)
    reopened.close()
    assert metadata == {"step": 1, "policy_version": 1, "note": "mid-warm-up"}
    assert again.step == 1
    again.train(_groups(1))
    again.train(_groups(2))
    assert _same(learner, again)


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    learner, store = tiny_learner(), CheckpointStore(tmp_path, keep=2)
    assert store.restore(learner) is None
    for step in range(4):
        learner.train(_groups(step))
        store.save(learner)
        store.save(learner)  # the same step again: nothing to do
    assert store.steps() == [3, 4]
    assert store.restore(learner, step=3) == {"step": 3, "policy_version": 3}
    assert learner.step == 3
    store.close()


@contextmanager
def _mounted(path: Path, options: str) -> Iterator[bool]:
    """A tmpfs with `options` at `path`; false where mounting is not permitted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def _file_limit(size: int) -> Iterator[None]:
    """Files can't grow past `size` bytes: needs no privilege."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _assert_one_line(error: CheckpointError, folder: Path) -> None:
    message = str(error)
    assert isinstance(error, UserError)
    assert "\n" not in message
    assert str(folder) in message
    assert "bytes" in message
    assert "resume" in message


def test_a_full_disk_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    learner = tiny_learner()
    learner.train(_groups(0))
    with _mounted(tmp_path / "disk", "size=1m") as mounted:
        folder = tmp_path / "disk"
        store = CheckpointStore(folder)
        if mounted:
            with pytest.raises(CheckpointError, match="bytes and .* are free; make room") as caught:
                store.save(learner)
        else:
            with _file_limit(4096), pytest.raises(CheckpointError) as caught:
                store.save(learner)
        _assert_one_line(caught.value, folder)
        assert _names(folder) == []
        store.close()


@pytest.mark.parametrize("wait", [True, False])
def test_a_disk_that_fills_up_midway_harms_nothing(tmp_path: Path, wait: bool) -> None:
    """The inode limit makes a real ENOSPC that the check for free bytes can't foresee."""
    learner = tiny_learner()
    learner.train(_groups(0))
    with _mounted(tmp_path / "disk", "size=64m,nr_inodes=80") as mounted:
        folder = tmp_path / "disk"
        store = CheckpointStore(folder, keep=3)
        store.save(learner)
        learner.train(_groups(1))
        fillers = [folder / f"filler{i}" for i in range(80)]
        if mounted:
            _fill(fillers)
        with _file_limit(resource.RLIM_INFINITY if mounted else 4096):
            with pytest.raises(CheckpointError, match="could not be written .* are free") as caught:
                store.save(learner, wait=wait)
                store.wait()
        _assert_one_line(caught.value, folder)
        assert [name for name in _names(folder) if "filler" not in name] == ["1"]
        for filler in fillers:
            filler.unlink(missing_ok=True)
        store.save(learner)
        assert store.steps() == [1, 2]
        again = tiny_learner(seed=9)
        store.restore(again)
        assert _same(again, learner)
        store.close()


def _fill(paths: list[Path]) -> None:
    """Create files until the file system has only room for a few more."""
    made = []
    for path in paths:
        try:
            path.touch()
        except OSError:
            break
        made.append(path)
    for path in made[-8:]:
        path.unlink()


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from learner_inputs import forked_group, tiny_learner
from patchgym.trainer.checkpoint import CheckpointStore
learner, store = tiny_learner(), CheckpointStore(Path(sys.argv[1]), keep=3)
for step in range(2):
    learner.train([forked_group(np.random.default_rng(step))])
    store.save(learner, wait=step == 0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_save_leaves_the_one_before(tmp_path: Path) -> None:
    places = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = CheckpointStore(tmp_path, keep=3)
    assert store.steps() in ([1], [1, 2])
    assert _names(tmp_path) == [str(step) for step in store.steps()]
    learner = tiny_learner(seed=9)
    assert store.restore(learner, step=1) == {"step": 1, "policy_version": 1}
    store.close()


RESHARDED = """
import sys
from pathlib import Path
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from learner_inputs import forked_group, tiny_learner
from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.learner import LearnerState
assert jax.device_count() == 8

def placed(learner, *shape):
    mesh = jax.make_mesh(shape, ("fsdp", "tp"))
    def place(leaf):
        axes = [
            name if size % mesh.shape[name] == 0 else None
            for size, name in zip(leaf.shape[-2:], ("fsdp", "tp"))
        ]
        spec = PartitionSpec(*[None] * (leaf.ndim - len(axes)), *axes)
        return jax.device_put(leaf, NamedSharding(mesh, spec))
    learner.restore(LearnerState(*jax.tree.map(place, learner.state)))
    return learner

store = CheckpointStore(Path(sys.argv[1]), keep=2)
learner = placed(tiny_learner(seed=9), 2, 4)
store.restore(learner, step=1)
embed = learner.params["embed"]
assert embed.sharding.mesh.shape == {"fsdp": 2, "tp": 4}
assert embed.addressable_shards[0].data.shape == (130, 8)
leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.state)]
np.savez(sys.argv[2], *leaves)
learner = placed(learner, 4, 2)
learner.restore(learner.state._replace(step=learner.state.step + 1))
store.save(learner)
store.close()
"""


def test_a_checkpoint_restores_onto_another_mesh_and_back(tmp_path: Path) -> None:
    """One device, then 8 as 2 x 4, written from 8 as 4 x 2, then one device: the same bits."""
    learner, store = tiny_learner(), CheckpointStore(tmp_path / "checkpoints", keep=2)
    learner.train(_groups(0))
    store.save(learner)
    store.close()
    out = tmp_path / "leaves.npz"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", RESHARDED, str(tmp_path / "checkpoints"), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.state)]
    with np.load(out) as found:
        assert all(np.array_equal(found[f"arr_{i}"], leaf) for i, leaf in enumerate(wanted))
    reopened, again = CheckpointStore(tmp_path / "checkpoints", keep=2), tiny_learner(seed=9)
    assert reopened.steps() == [1, 2]
    reopened.restore(again, step=2)
    reopened.close()
    for ours, theirs in zip(wanted[:-1], jax.tree.leaves(again.state), strict=False):
        np.testing.assert_array_equal(ours, theirs)
    assert again.step == 2


def test_a_later_step_does_not_take_the_memory_that_the_host_still_reads() -> None:
    """Why nothing is copied before writing goes on beside the next step."""
    learner = tiny_learner()
    views = [np.asarray(leaf) for leaf in jax.tree.leaves(learner.state)]
    copies = [view.copy() for view in views]
    assert not any(view.flags.owndata for view in views if view.size > 1), "views, no copies"
    learner.train(_groups(0))
    learner.train(_groups(1))
    assert all(np.array_equal(a, b) for a, b in zip(views, copies, strict=True))
