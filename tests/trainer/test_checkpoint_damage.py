"""Checkpoints that can't be restored: one line that names what is wrong and which one is whole."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner_inputs import forked_group, tiny_learner
from tiny_model import TINY

from patchgym.trainer.checkpoint import CheckpointError, CheckpointStore
from patchgym.trainer.checkpoint_contents import describe, difference
from patchgym.trainer.learner import Learner, LearnerState
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.decoder import init_params

# Orbax's readers of other arrays report to nobody once one of them failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def readers_dropped() -> Iterator[None]:
    """They end in the test that made them, not in one that comes later."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("written")
    learner, store = tiny_learner(), CheckpointStore(folder, keep=2)
    for step in range(2):
        learner.train([forked_group(np.random.default_rng(step))])
        store.save(learner)
    store.close()
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of them, to be damaged."""
    return shutil.copytree(written, tmp_path / "checkpoints")


def leaves(learner: Learner) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(learner.state)]


def refusal(folder: Path, learner: Learner, step: int | None = None) -> str:
    """The one line of a restore that fails and leaves `learner` as it was."""
    before = leaves(learner)
    store = CheckpointStore(folder, keep=2)
    with pytest.raises(CheckpointError) as caught:
        store.restore(learner, step=step)
    store.close()
    assert all(np.array_equal(a, b) for a, b in zip(before, leaves(learner), strict=True))
    assert "\n" not in str(caught.value) and str(folder / str(step or 2)) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("how", ["missing", "cut", "empty"])
def test_every_file_that_is_missing_or_cut_short_is_named(folder: Path, how: str) -> None:
    files = [p for p in (folder / "2").rglob("*") if p.is_file() and p.name != "files.json"]
    assert len(files) > 10
    for file in files:
        whole = file.read_bytes()
        if how == "missing":
            file.unlink()
        else:
            file.write_bytes(whole[: len(whole) // 2] if how == "cut" else b"")
        words = refusal(folder, tiny_learner(seed=9))
        name = str(file.relative_to(folder / "2"))
        assert (f"{name} is missing" if how == "missing" else f"{name} has ") in words
        assert "remove it to go on from that of step 1, which is whole" in words
        file.write_bytes(whole)
    (folder / "2" / "state" / "_METADATA").unlink()
    shutil.rmtree(folder / "2")
    store, learner = CheckpointStore(folder, keep=2), tiny_learner(seed=9)
    assert store.restore(learner) == {"step": 1, "policy_version": 1}
    store.close()


def test_damage_is_one_line_without_the_sizes_too(folder: Path) -> None:
    """A checkpoint of an earlier version, or of a process killed before it wrote them."""
    (folder / "2" / "files.json").unlink()
    for file in sorted((folder / "2" / "state" / "ocdbt.process_0" / "d").iterdir()):
        whole = file.read_bytes()
        file.unlink()
        store, learner = CheckpointStore(folder, keep=2), tiny_learner(seed=9)
        try:
            store.restore(learner)
            assert learner.step == 2  # Orbax does not read this one
        except CheckpointError as error:
            assert "which is whole" in str(error) and "\n" not in str(error)
        finally:
            store.close()
        file.write_bytes(whole)


def test_only_what_is_whole_is_named_instead(folder: Path) -> None:
    (folder / "2" / "state" / "_METADATA").unlink()
    (folder / "1" / "state" / "_METADATA").unlink()
    assert "no other is there: put its files back, or start a new run" in refusal(
        folder, tiny_learner(seed=9)
    )


def test_a_step_that_is_not_there_is_said_so(folder: Path) -> None:
    assert "it is not there" in refusal(folder, tiny_learner(seed=9), step=7)


def test_another_architecture_is_named(folder: Path) -> None:
    other = replace(TINY, layers=3)
    learner = Learner(LearnerConfig(row_tokens=(64,)), other, init_params(other, 0))
    words = refusal(folder, learner)
    assert "of another architecture: params/layers/attention_norm is float32 [2, 32] in it" in words
    assert "float32 [3, 32] here; use the model.path that it was made with" in words
    untied = replace(TINY, tied=False)
    learner = Learner(LearnerConfig(row_tokens=(64,)), untied, init_params(untied, 0))
    assert "params/head is missing in it and float32 [32, 260] here" in refusal(folder, learner)
    with pytest.raises(CheckpointError, match="another architecture"):
        CheckpointStore(folder, keep=2).params(init_params(other, 0), step=2)


def test_another_optimizer_setting_is_named_and_never_cast(folder: Path) -> None:
    learner = tiny_learner(seed=9)
    first, *others = learner.state.optimizer
    halved = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), first.mu)
    learner.restore(
        LearnerState(learner.params, (first._replace(mu=halved), *others), jnp.zeros((), jnp.int32))
    )
    words = refusal(folder, learner)
    assert "another optimizer setting: optimizer/0/mu/embed is float32 [260, 32] in it" in words
    assert "bfloat16 [260, 32] here; use the [learner] settings" in words


def test_the_parameters_alone_are_read_bit_for_bit(folder: Path) -> None:
    store, learner = CheckpointStore(folder, keep=2), tiny_learner(seed=9)
    like = init_params(TINY, 3)
    found = store.params(like, step=1)
    store.restore(learner, step=1)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, learner.params))
    (folder / "1" / "state" / "_METADATA").unlink()
    with pytest.raises(CheckpointError, match="_METADATA is missing.*that of step 2"):
        store.params(like, step=1)
    store.close()


def test_differences_name_weights_before_the_optimizer() -> None:
    small, large = np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)
    saved = describe({"params": {"a": small}, "optimizer": [{"mu": small}]})
    assert saved == {"params/a": ((2, 3), "float32"), "optimizer/0/mu": ((2, 3), "float32")}
    wanted = describe({"params": {"a": large}, "optimizer": [{"mu": large}]})
    assert difference(saved, saved) is None
    words = difference(saved, wanted)
    assert words and words.startswith("it is of another architecture: params/a is float32 [2, 3]")
