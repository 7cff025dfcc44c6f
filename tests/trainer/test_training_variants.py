"""`patchgym train` with adapters, on a mesh, in bfloat16: settings that reach the learner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coin_runs import coin_run, patchgym

from patchgym.trainer.model import load_model
from patchgym.trainer.run_folder import RunFolder
from patchgym.trainer.trained import load_trained

pytestmark = pytest.mark.slow


def _train(folder: Path, environment: dict[str, str], *words: str) -> dict[str, Any]:
    done = patchgym(folder, environment, "train", *words)
    assert done.returncode == 0, done.stderr
    shown = patchgym(folder, environment, "runs", "show", "coins", "--json")
    summary: dict[str, Any] = json.loads(shown.stdout)
    return summary


def test_adapters_are_trained_kept_and_gone_on_with(
    root: Path,
    tmp_path: Path,
    clean_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = {"row_tokens": [256], "learning_rate": 0.01, "lora": {"rank": 2}}
    coin_run(root, tmp_path, {"learner": learner})
    assert _train(tmp_path, clean_environment, "--config", "run.toml")["steps"] == 2
    more = _train(tmp_path, clean_environment, "--resume", "coins", "--run.steps", "3")
    assert more["steps"] == 3
    monkeypatch.chdir(tmp_path)  # the run names its model by a path
    (_, params, _), step = load_trained(RunFolder(tmp_path / "runs" / "coins"))
    _, initial, _ = load_model(tmp_path / "model")
    assert step == 3
    changed = {
        name: bool(np.any(np.asarray(params["layers"][name]) != initial["layers"][name]))
        for name in ("query", "down", "attention_norm")
    }
    assert changed == {"query": True, "down": True, "attention_norm": False}


def test_a_mesh_of_four_devices_trains_and_feeds_the_sampler(
    root: Path, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    mesh = {"fsdp": 2, "context": 2}
    learner = {"row_tokens": [512], "mesh": mesh, "compute": "bfloat16", "keep": "inputs"}
    coin_run(root, tmp_path, {"learner": learner})
    devices = "--xla_force_host_platform_device_count=4"
    environment = {**clean_environment, "XLA_FLAGS": devices}
    summary = _train(tmp_path, environment, "--config", "run.toml")
    assert summary["steps"] == 2

    alone = patchgym(tmp_path, clean_environment, "train", "--resume", "coins")
    assert alone.returncode == 2
    assert "learner.mesh is 2 x 2 x 1" in alone.stderr
    assert "there are 1: change its sizes" in alone.stderr

    one = ("--learner.mesh.fsdp", "1", "--learner.mesh.context", "1", "--run.steps", "3")
    assert _train(tmp_path, clean_environment, "--resume", "coins", *one)["steps"] == 3
