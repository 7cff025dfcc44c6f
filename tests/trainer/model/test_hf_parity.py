"""Hugging Face's transformers computes the same as our decoder, whoever wrote the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_model import byte_tokenizer

from patchgym.trainer.model import load_model
from patchgym.trainer.model.hf_config import read_config
from patchgym.trainer.model.safetensors import load_sharded
from patchgym.trainer.weights import export_folder

from .family_cases import CASES, Floats, causal_logprobs, random_params
from .reference_runs import KEPT, run_reference

LIMIT = 1e-5
"""Nats by which a log-probability may differ in float32."""

PRETRAINED_LIMIT = 2e-4
"""The same for pretrained weights, whose thirty layers round more: docs/models.md has the numbers.
"""

TOKENS = np.random.default_rng(5).integers(0, 260, (2, 40)).tolist()
"""Five times as long as the shortest window."""

SHARD = 20_000
"""Bytes of a file of weights, so that there are several."""


@pytest.fixture(scope="module")
def scratch(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `theirs` and `ours` of each case, and what transformers computes with each.

    One process does it all: importing torch takes longer than the work.
    """
    scratch = tmp_path_factory.mktemp("parity")
    jobs: list[dict[str, Any]] = []
    for name, case in CASES.items():
        folder = scratch / name
        params = random_params(case.config, 7)
        export_folder(case.config, params, byte_tokenizer(), folder / "ours", shard_bytes=SHARD)
        create = {"create": case.settings, "shard": SHARD}
        for kind, more in (("theirs", create), ("ours", {"dtype": "float32"})):
            place = {"folder": str(folder / kind), "logprobs": str(folder / f"{kind}.npy")}
            jobs.append({"tokens": TOKENS, **place, **more})
    run_reference(vllm_python, scratch, jobs)
    return scratch


def _expected(scratch: Path, name: str, kind: str) -> Floats:
    logprobs: Floats = np.load(scratch / name / f"{kind}.npy")
    return logprobs


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_transformers_saved_computes_the_same_here(scratch: Path, name: str) -> None:
    folder, config = scratch / name / "theirs", CASES[name].config
    assert read_config(folder / "config.json") == config
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    _, params = load_sharded(folder, lambda path, shape: place)
    ours = causal_logprobs(config, params, TOKENS)
    np.testing.assert_allclose(ours, _expected(scratch, name, "theirs"), rtol=0, atol=LIMIT)


@pytest.mark.parametrize("name", CASES)
def test_a_model_that_we_exported_computes_the_same_in_transformers(
    scratch: Path, name: str
) -> None:
    config = CASES[name].config
    assert len(list((scratch / name / "ours").glob("model-*.safetensors"))) > 1
    ours = causal_logprobs(config, random_params(config, 7), TOKENS)
    np.testing.assert_allclose(ours, _expected(scratch, name, "ours"), rtol=0, atol=LIMIT)


@pytest.mark.model
def test_pretrained_weights_compute_what_transformers_computed(weights: Path) -> None:
    config, params, _ = load_model(weights)
    kept = json.loads(KEPT.read_text())
    exact, tokens = np.asarray(kept["logprobs"]), [kept["tokens"]]
    ours = causal_logprobs(config, params, tokens)[0, :, :: kept["stride"]]
    np.testing.assert_allclose(ours, exact, rtol=0, atol=PRETRAINED_LIMIT)
