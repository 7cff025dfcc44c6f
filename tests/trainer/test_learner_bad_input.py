"""What a user meets who trains on bad input: a clear error, or a behaviour that is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from learner_inputs import forked_group, tiny_learner
from tiny_model import TINY, byte_tokenizer

from patchgym.trainer.batching import TrainSequence
from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.cli import main
from patchgym.trainer.config import ModelSection, RunConfig, RunSection, load_config
from patchgym.trainer.errors import ConfigError
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.decoder import init_params
from patchgym.trainer.run_folder import RunFolder, create_run
from patchgym.trainer.token_ids import check_token_ids
from patchgym.trainer.weights import export_folder

# Orbax's readers of other arrays report to nobody once one of them failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SETTINGS = LearnerConfig(row_tokens=(64,), length_normalizer=8)


def group(seed: int = 0) -> list[TrainSequence]:
    return forked_group(np.random.default_rng(seed))


def bits(learner: Learner) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(learner.state)]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with one checkpoint, of a model in several files."""
    model, params = tmp_path / "model", init_params(TINY, 0)
    export_folder(TINY, params, byte_tokenizer(), model, shard_bytes=40_000)
    folder = create_run(
        RunConfig(
            run=RunSection(folder=str(tmp_path), name="made"),
            model=ModelSection(path=str(model)),
            learner=SETTINGS,
        )
    )
    learner, store = Learner(SETTINGS, TINY, params), CheckpointStore(folder.checkpoints)
    learner.train([group()])
    store.save(learner)
    store.close()
    return folder


def refused(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that an export of the run's model ends with."""
    out = run.path.parent / "out"
    where = ["--folder", str(run.path.parent), "export", "made", "--format", "hf"]
    assert main(["runs", *where, "--out", str(out)]) == 2
    assert not out.exists()
    words = capsys.readouterr().err
    assert len(words.splitlines()) == 1
    return words


def test_a_checkpoint_of_another_architecture_is_one_line(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(TINY, layers=3)
    model = run.path.parent / "model"
    export_folder(other, init_params(other, 0), byte_tokenizer(), model)
    words = refused(run, capsys)
    assert f"{run.checkpoints / '1'}: it is of another architecture: params/layers/" in words
    assert "use the model.path that it was made with" in words


def test_a_missing_part_of_a_checkpoint_is_one_line(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    data = sorted((run.checkpoints / "1" / "state").glob("ocdbt.process_0/d/*"))
    data[0].unlink()
    words = refused(run, capsys)
    assert f"state/ocdbt.process_0/d/{data[0].name} is missing" in words
    assert "no other is there: put its files back, or start a new run" in words


def test_a_missing_shard_of_the_model_is_one_line(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = sorted((run.path.parent / "model").glob("model-*-of-*.safetensors"))
    assert len(shards) > 1
    shards[1].unlink()
    assert shards[1].name in refused(run, capsys)


def test_a_group_of_one_is_refused_and_a_lone_sequence_is_trained() -> None:
    with pytest.raises(ConfigError, match=r"group\.size .* at least 2"):
        load_config(None, [("group.size", "1")])
    # Its advantage is the caller's: a weight in supervised training, say.
    report = tiny_learner().train([group()[:1]])
    assert (report.applied, report.sequences) == (True, 1)


@pytest.mark.parametrize("settings", [{}, {"updates": 2}])
def test_without_any_advantage_a_step_changes_nothing_and_says_so(settings: Any) -> None:
    learner = tiny_learner(**settings)
    before = bits(learner)
    report = learner.train([[replace(s, advantage=0.0) for s in group(i)] for i in range(2)])
    assert not report.applied and not report.not_finite
    assert report.reason == "no sequence has both an advantage and a token to learn"
    assert (report.skipped, learner.step) == (0, 0)
    assert bits(learner) == before


def test_a_trajectory_longer_than_the_longest_row_is_named_before_anything_is_trained() -> None:
    learner = tiny_learner(row_tokens=(16, 20))
    before = bits(learner)
    words = r"a sequence of group 0 has 24 tokens, the longest row 20: raise learner\.row_tokens"
    with pytest.raises(ValueError, match=words):
        learner.train([group()])
    assert bits(learner) == before


@pytest.mark.parametrize("token", [260, -1])
def test_an_id_that_is_not_in_the_vocabulary_is_named_before_anything_is_trained(
    token: int,
) -> None:
    learner, good = tiny_learner(), group()
    before = bits(learner)
    tokens = good[2].tokens.copy()
    tokens[3] = token
    bad = [*good[:2], replace(good[2], tokens=tokens)]
    words = rf"group 1 has the token id {token}, the model's ids are 0 to 259: .* tokenizer"
    with pytest.raises(ValueError, match=words):
        check_token_ids([good, bad], TINY.vocabulary)
    with pytest.raises(ValueError, match=words):
        learner.train([good, bad])
    assert bits(learner) == before


def test_the_first_and_the_last_id_are_in_the_vocabulary() -> None:
    tokens = group()[0].tokens.copy()
    tokens[:2] = 0, TINY.vocabulary - 1
    check_token_ids([[replace(group()[0], tokens=tokens)], []], TINY.vocabulary)
