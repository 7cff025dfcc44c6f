"""Checkpoints of adapters: small, bit for bit, and whole weights for whoever samples from them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from learner_inputs import forked_group, tiny_learner
from tiny_model import TINY, byte_tokenizer

from patchgym.trainer.checkpoint import CheckpointError, CheckpointStore
from patchgym.trainer.config import ModelSection, RunConfig, RunSection
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.lora import LoraConfig
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.run_folder import RunFolder, create_run
from patchgym.trainer.trained import load_trained
from patchgym.trainer.weights import export_folder

# Orbax's readers of other arrays report to nobody once one of them failed.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SETTINGS = LearnerConfig(
    row_tokens=(64,), length_normalizer=8, learning_rate=0.05, lora=LoraConfig(rank=4)
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Params]:
    """A run with a checkpoint of two steps, and the model that it samples from."""
    folder = tmp_path_factory.mktemp("made")
    base = init_params(TINY, 0)
    export_folder(TINY, base, byte_tokenizer(), folder / "model")
    run = create_run(
        RunConfig(
            run=RunSection(folder=str(folder), name="made"),
            model=ModelSection(path=str(folder / "model")),
            learner=SETTINGS,
        )
    )
    learner, store = Learner(SETTINGS, TINY, base), CheckpointStore(run.checkpoints)
    for step in range(2):
        learner.train([forked_group(np.random.default_rng(step))])
    store.save(learner)
    store.close()
    return run, learner.params


def test_the_model_of_a_checkpoint_is_the_one_that_was_sampled_from(
    made: tuple[RunFolder, Params],
) -> None:
    (model, params, _), step = load_trained(made[0])
    assert (model, step) == (TINY, 2)
    assert jax.tree.all(jax.tree.map(np.array_equal, params, made[1]))
    base = init_params(TINY, 0)
    assert not np.array_equal(params["layers"]["down"], base["layers"]["down"])
    np.testing.assert_array_equal(params["embed"], base["embed"])


def test_a_checkpoint_holds_adapters_and_not_the_model(made: tuple[RunFolder, Params]) -> None:
    folder = made[0].checkpoints / "2"
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert written < 4 * TINY.parameters * 3 / 2, "weights and two moments would be more"


@pytest.mark.parametrize("lora", [LoraConfig(rank=2), LoraConfig(rank=4, targets=("query",)), None])
def test_other_adapters_are_named(made: tuple[RunFolder, Params], lora: LoraConfig | None) -> None:
    learner = tiny_learner(lora=lora or LoraConfig())
    store = CheckpointStore(made[0].checkpoints)
    words = r"it has other adapters: params/\w+/A is .* use the learner\.lora settings and the mod"
    with pytest.raises(CheckpointError, match=words):
        store.restore(learner)
    store.close()
    assert learner.step == 0
