"""Which checkpoint is the best, which stay, and that the ranking is on disk with them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from learner_inputs import forked_group, tiny_learner

from patchgym.trainer.checkpoint import CheckpointError, CheckpointStore
from patchgym.trainer.checkpoint_files import read_value
from patchgym.trainer.checkpoint_ranking import Value, best_step, kept_steps, value_from
from patchgym.trainer.learner import Learner


def heldout(value: float) -> Value:
    return Value(measure="heldout", value=value)


def reward(value: float) -> Value:
    return Value(measure="reward", value=value)


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ({}, None),
        ({5: reward(0.2), 10: reward(0.4), 15: reward(0.3)}, 10),
        ({15: reward(0.4), 10: reward(0.4), 5: reward(0.1)}, 10),
        ({5: reward(0.9), 10: heldout(0.3), 15: reward(0.95)}, 10),
        ({5: heldout(0.3), 10: heldout(0.3)}, 5),
        ({5: reward(math.nan)}, None),
        ({5: reward(math.nan), 10: reward(-1.0)}, 10),
        ({5: heldout(math.nan), 10: reward(0.1)}, 10),
        ({5: reward(math.inf), 10: reward(0.1)}, 10),
    ],
)
def test_the_best_step(values: dict[int, Value], best: int | None) -> None:
    assert best_step(values) == best


def test_the_last_the_best_and_the_held_stay() -> None:
    values = {1: reward(0.5), 2: reward(0.9), 3: reward(0.1), 9: reward(1.0)}
    steps = [1, 2, 3, 4, 5]
    assert kept_steps(steps, values, last=2, keep_best=True) == {2, 4, 5}
    assert kept_steps(steps, values, last=2, keep_best=False) == {4, 5}
    assert kept_steps(steps, values, last=1, keep_best=True, held=[3, 8]) == {2, 3, 5}
    assert kept_steps([1], {}, last=3, keep_best=True) == {1}


@pytest.mark.parametrize(
    "record", [None, [], {}, {"measure": "luck", "value": 1.0}, {"measure": "reward", "value": "x"}]
)
def test_a_record_that_is_no_value_is_none(record: object) -> None:
    assert value_from(record) is None


def trained(learner: Learner) -> Learner:
    learner.train([forked_group(np.random.default_rng(learner.step))])
    return learner


@pytest.mark.parametrize("wait", [True, False])
def test_the_best_stays_beside_the_last_and_is_known_after_reopening(
    tmp_path: Path, wait: bool
) -> None:
    learner, store = tiny_learner(), CheckpointStore(tmp_path)
    for value in (0.25, 0.75, 0.75, math.nan, 0.5):
        store.note(learner.step + 1, "reward", value)
        store.save(trained(learner), wait=wait)
    store.close()
    reopened = CheckpointStore(tmp_path)
    assert reopened.steps() == [2, 5] and reopened.best() == 2
    reopened.note(6, "reward", 0.9)
    reopened.save(trained(learner))
    assert reopened.steps() == [6] and reopened.best() == 6
    again = tiny_learner(seed=9)
    assert reopened.restore(again, step=reopened.choose("best")) == {
        "step": 6,
        "policy_version": 6,
        "value": {"measure": "reward", "value": 0.9},
    }
    reopened.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["6"]


def test_a_held_out_rate_that_comes_late_ranks_a_checkpoint_that_waited_for_it(
    tmp_path: Path,
) -> None:
    learner, store = tiny_learner(), CheckpointStore(tmp_path)
    for value in (0.9, 0.1, 0.2):
        store.note(learner.step + 1, "reward", value)
        if learner.step == 1:
            store.hold(2)
        store.save(trained(learner))
    assert store.steps() == [1, 2, 3]
    store.note(2, "heldout", 0.05)
    store.note(2, "reward", 1.0)  # never replaces it
    assert store.best() == 2
    store.save(trained(learner))
    store.close()
    reopened = CheckpointStore(tmp_path)
    assert reopened.steps() == [2, 4] and reopened.best() == 2
    assert read_value(tmp_path / "2") == heldout(0.05)
    reopened.close()


def test_without_best_only_the_last_stay(tmp_path: Path) -> None:
    learner, store = tiny_learner(), CheckpointStore(tmp_path, keep=2, best=False)
    for value in (0.9, 0.1, 0.2):
        store.note(learner.step + 1, "reward", value)
        store.save(trained(learner))
    assert store.steps() == [2, 3] and store.best() == 3
    store.close()


def test_checkpoints_are_chosen_by_name(tmp_path: Path) -> None:
    learner, store = tiny_learner(), CheckpointStore(tmp_path, keep=3)
    with pytest.raises(CheckpointError, match="no checkpoint 'latest'.*there are none"):
        store.choose("latest")
    store.save(trained(learner))
    with pytest.raises(CheckpointError, match="no checkpoint 'best': none was measured"):
        store.choose("best")
    store.save(trained(learner))
    store.note(1, "heldout", 0.5)
    assert [store.choose(which) for which in ("latest", "best", "2")] == [2, 1, 2]
    for which in ("3", "-1", "newest", ""):
        with pytest.raises(CheckpointError, match="not there; there are steps 1, 2, latest"):
            store.choose(which)
    store.close()


def test_a_removal_that_was_killed_midway_is_finished_on_opening(tmp_path: Path) -> None:
    learner, store = tiny_learner(), CheckpointStore(tmp_path, keep=2)
    store.save(trained(learner))
    store.save(trained(learner))
    store.close()
    (tmp_path / "1").rename(tmp_path / "1.orbax-checkpoint-tmp-dropped")
    (tmp_path / "1.orbax-checkpoint-tmp-dropped" / "metadata" / "metadata").unlink()
    reopened = CheckpointStore(tmp_path, keep=2)
    assert reopened.steps() == [2]
    reopened.close()
    assert [path.name for path in tmp_path.iterdir()] == ["2"]


def test_the_value_is_written_with_the_checkpoint_not_after_it(tmp_path: Path) -> None:
    """A process that is killed once the checkpoint is whole leaves a ranked one."""
    learner, store = tiny_learner(), CheckpointStore(tmp_path)
    store.note(1, "reward", 0.5)
    store.save(trained(learner))
    store.close()
    assert not (tmp_path / "1" / "value.json").exists()
    about = json.loads((tmp_path / "1" / "metadata" / "metadata").read_text())
    assert about["value"] == {"measure": "reward", "value": 0.5}
