"""PEFT and vLLM compute with our adapters what we compute with them, and the other way round."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_model import byte_tokenizer

from patchgym.trainer.lora import LoraConfig
from patchgym.trainer.lora.adapters import Adapters, init_adapters, merged
from patchgym.trainer.lora.export import export_peft
from patchgym.trainer.lora.load import load_peft
from patchgym.trainer.model import ModelConfig
from patchgym.trainer.model.config import Family
from patchgym.trainer.weights import export_folder
from vllm_serving import vllm_environment

from .model.family_cases import CASES, causal_logprobs, random_params

pytestmark = pytest.mark.slow

LIMIT = 1e-4
"""Nats by which a log-probability may differ: two products there, one here, and another library."""

TOKENS = np.random.default_rng(5).integers(0, 260, (2, 40)).tolist()
CONFIG = LoraConfig(rank=4, alpha=6.0)
PART = LoraConfig(rank=3, alpha=12.0, targets=("value", "down"))
THEIRS = {"r": 5, "lora_alpha": 10}


def trained(config: LoraConfig, model: ModelConfig) -> Adapters:
    """Adapters whose B is no longer zero."""
    adapters = init_adapters(config, model, 3)
    for pair in adapters.values():
        pair["B"] = 0.3 * jax.random.normal(jax.random.key(4), pair["B"].shape)
    return adapters


def run_in_vllm_environment(python: Path, script: str, scratch: Path, *words: Path) -> str:
    """What a script beside this file prints, last line."""
    done = subprocess.run(
        [python, Path(__file__).with_name(script), *words],
        cwd=scratch, env=vllm_environment(), capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout.strip().rpartition("\n")[2]


@pytest.fixture(scope="module")
def scratch(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `ours`, `part` and `theirs` of each case, and what PEFT computes with each.

    One process does it all: importing torch takes longer than the work.
    """
    scratch = tmp_path_factory.mktemp("peft")
    jobs: list[dict[str, Any]] = []
    for name, case in CASES.items():
        folder, model = scratch / name, case.config
        export_folder(model, random_params(model, 7), byte_tokenizer(), folder / "model")
        for kind, config in (("ours", CONFIG), ("part", PART)):
            export_peft(folder / kind, config, trained(config, model), model, "base")
        for kind in ("ours", "part", "theirs"):
            place = {"adapter": str(folder / kind), "logprobs": str(folder / f"{kind}.npy")}
            jobs.append({"model": str(folder / "model"), "tokens": TOKENS, **place})
        jobs[-1]["create"] = THEIRS
    (scratch / "jobs.json").write_text(json.dumps(jobs))
    run_in_vllm_environment(vllm_python, "lora_with_peft.py", scratch, scratch / "jobs.json")
    return scratch


@pytest.mark.parametrize("kind", ["ours", "part"])
@pytest.mark.parametrize("name", CASES)
def test_peft_computes_the_merged_forward_with_an_adapter_that_we_wrote(
    name: str, kind: str, scratch: Path
) -> None:
    model, config = CASES[name].config, {"ours": CONFIG, "part": PART}[kind]
    base = random_params(model, 7)
    ours = causal_logprobs(model, merged(config, base, trained(config, model)), TOKENS)
    theirs = np.load(scratch / name / f"{kind}.npy")
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=LIMIT)
    assert np.abs(causal_logprobs(model, base, TOKENS) - theirs).max() > 1000 * LIMIT


@pytest.mark.parametrize("name", CASES)
def test_an_adapter_that_peft_wrote_computes_the_same_here(name: str, scratch: Path) -> None:
    model = CASES[name].config
    config, adapters = load_peft(scratch / name / "theirs", model)
    assert config == LoraConfig(rank=5, alpha=10.0)
    ours = causal_logprobs(model, merged(config, random_params(model, 7), adapters), TOKENS)
    np.testing.assert_allclose(ours, np.load(scratch / name / "theirs.npy"), rtol=0, atol=LIMIT)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_vllm_serves_an_adapter_that_we_wrote(
    family: Family, vllm_python: Path, tmp_path: Path
) -> None:
    model = ModelConfig(
        family=family, vocabulary=260, width=64, layers=2, heads=2, kv_heads=1,
        head_dim=32,  # the least that its CPU attention takes
        ffn=96, context=256,
    )  # fmt: skip
    base, adapters = random_params(model, 7), trained(CONFIG, model)
    export_folder(model, base, byte_tokenizer(), tmp_path / "model")
    export_peft(tmp_path / "adapter", CONFIG, adapters, model, "base")
    (tmp_path / "tokens.json").write_text(json.dumps(TOKENS[0]))
    places = (tmp_path / "model", tmp_path / "adapter", tmp_path / "tokens.json")
    said = run_in_vllm_environment(vllm_python, "lora_with_vllm.py", tmp_path, *places)
    found = json.loads(said)
    for kind, params in (("with", merged(CONFIG, base, adapters)), ("without", base)):
        ours = causal_logprobs(model, params, TOKENS[:1])[0]
        chosen = ours[np.arange(len(TOKENS[0]) - 1), TOKENS[0][1:]]
        np.testing.assert_allclose(found[kind], chosen, rtol=0, atol=LIMIT)
    assert np.abs(np.subtract(found["with"], found["without"])).max() > 1000 * LIMIT
