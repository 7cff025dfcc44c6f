"""A checkpoint as a Hugging Face folder, and as a policy: the best one, the latest, or a step."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from learner_inputs import forked_group
from tiny_model import TINY, byte_tokenizer, full_forward

from patchgym.trainer.checkpoint import CheckpointStore
from patchgym.trainer.cli import main
from patchgym.trainer.config import ModelSection, RunConfig, RunSection
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model import load_model
from patchgym.trainer.model.decoder import Params, init_params
from patchgym.trainer.policies import PolicyOptions, open_policy
from patchgym.trainer.run_folder import RunFolder, create_run, locked
from patchgym.trainer.weights import export_folder

from .model.reference_runs import run_reference

VALUES = (0.75, 0.25, 0.5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, list[Params]]:
    """A run with checkpoints of steps 1 to 3, the first of which is the best; its weights."""
    folder = tmp_path_factory.mktemp("made")
    params = init_params(TINY, 0)
    export_folder(TINY, params, byte_tokenizer(), folder / "model")
    learning = LearnerConfig(row_tokens=(64,), learning_rate=0.05, length_normalizer=8)
    run = create_run(
        RunConfig(
            run=RunSection(folder=str(folder), name="made"),
            model=ModelSection(path=str(folder / "model")),
            learner=learning,
        )
    )
    learner, store = Learner(learning, TINY, params), CheckpointStore(run.checkpoints, keep=3)
    weights = []
    for step, value in enumerate(VALUES):
        learner.train([forked_group(np.random.default_rng(step))])
        store.note(step + 1, "reward", value)
        store.save(learner)
        weights.append(learner.params)
    store.close()
    return run, weights


def exported(run: RunFolder, out: Path, *words: str) -> int:
    where = ["--folder", str(run.path.parent), "export", "made", "--format", "hf"]
    return main(["runs", *where, "--out", str(out), *words])


@pytest.mark.parametrize(("which", "step"), [("best", 1), ("latest", 3), ("2", 2)])
def test_a_chosen_checkpoint_is_exported(
    made: tuple[RunFolder, list[Params]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    which: str,
    step: int,
) -> None:
    run, weights = made
    assert exported(run, tmp_path / "out", "--checkpoint", which, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {"out": str(tmp_path / "out"), "step": step, "precision": "float32"}
    model, params, tokenizer = load_model(tmp_path / "out")
    assert model == TINY
    assert jax.tree.all(jax.tree.map(np.array_equal, params, weights[step - 1]))
    assert tokenizer.encode("sum in") == byte_tokenizer().encode("sum in")


def test_transformers_load_it_and_compute_the_same(
    made: tuple[RunFolder, list[Params]], vllm_python: Path, tmp_path: Path
) -> None:
    run, weights = made
    assert exported(run, tmp_path / "out", "--checkpoint", "best") == 0
    tokens = byte_tokenizer().encode("two and two are four")
    job = {"folder": str(tmp_path / "out"), "logprobs": str(tmp_path / "out.npy")}
    run_reference(vllm_python, tmp_path, [{"tokens": [tokens], "dtype": "float32", **job}])
    theirs = np.load(tmp_path / "out.npy")[0]
    np.testing.assert_allclose(theirs, full_forward(TINY, weights[0], tokens), atol=1e-5)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--checkpoint", "9"), "no checkpoint '9': it is not there; there are steps 1, 2, 3"),
        (("--tokens",), "--tokens, --tokenizer, --sample and --only are for trajectories"),
        (("--only", "resolved"), "are for trajectories, not hf"),
    ],
)
def test_a_mistake_is_one_line(
    made: tuple[RunFolder, list[Params]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    part: str,
) -> None:
    assert exported(made[0], tmp_path / "out", *words) == 2
    printed = capsys.readouterr().err
    assert part in printed and len(printed.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_flags_of_the_model_are_refused_for_trajectories(
    made: tuple[RunFolder, list[Params]], capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["runs", "--folder", str(made[0].path.parent), "export", "made"]
    assert main([*where, "--format", "chat", "--checkpoint", "best"]) == 2
    assert "--checkpoint is for the model: use it with --format hf" in capsys.readouterr().err


def test_a_run_under_way_is_left_alone(
    made: tuple[RunFolder, list[Params]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(made[0]):
        assert exported(made[0], tmp_path / "out") == 2
    assert "another process is running it" in capsys.readouterr().err


@pytest.mark.anyio
@pytest.mark.parametrize(("spec", "step"), [("made@best", 1), ("made@2", 2), ("made", 3)])
async def test_a_policy_is_opened_with_a_chosen_checkpoint(
    made: tuple[RunFolder, list[Params]], spec: str, step: int
) -> None:
    options = PolicyOptions(runs=made[0].path.parent, context_tokens=256, slots=1)
    async with open_policy(f"run:{spec}", options) as opened:
        assert (opened.version, opened.model) == (step, f"made-step{step}")
