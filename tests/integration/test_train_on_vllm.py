"""A run whose rollouts are sampled by a real vLLM server: published to, agreed with, trained on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patchgym.trainer.ledger import LedgerReader
from patchgym.trainer.model import load_model
from patchgym.trainer.weights import export_folder
from vllm_serving import serving

pytestmark = [pytest.mark.model, pytest.mark.slow]

SETTINGS = {
    "run.name": "served",
    "run.steps": "3",
    "group.size": "4",
    "group.per_step": "1",
    "rollout.in_flight": "8",
    "evaluation.samples": "0",
}


def test_a_run_trains_on_what_a_server_samples(
    root: Path, vllm_python: Path, weights: Path, tmp_path: Path
) -> None:
    config, params, tokenizer = load_model(weights)
    export_folder(config, params, tokenizer, tmp_path / "model")
    with serving(vllm_python, tmp_path / "model", tmp_path / "log") as (url, _):
        words = [f"--{key}={value}" for key, value in SETTINGS.items()]
        words += [f"--policy.use=vllm:{url}", f"--run.folder={tmp_path}"]
        patchgym = str(Path(sys.executable).with_name("patchgym"))
        done = subprocess.run(
            [patchgym, "train", "--config", "examples/arithmetic.toml", *words],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with LedgerReader(tmp_path / "served" / "run.sqlite") as reader:
        steps = reader.steps()
        versions = {row[0] for row in reader.rows("SELECT policy_version FROM rollouts")}
    assert len(steps) == 3
    assert versions >= {0, 1}, "the weights of the first step were sampled from"
    # Float32 on both sides, and the first step is at staleness 0.
    assert steps[0]["staleness"] == {"0": 1}
    assert steps[0]["mismatch_max"] < 1e-3
    assert all(step["mismatch_mean"] < 0.3 for step in steps)
