"""vLLM in process: the checks run in .venv-vllm, by a script, and are asserted here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from patchgym.trainer.model import load_model
from patchgym.trainer.weights import export_folder
from vllm_serving import vllm_environment

pytestmark = [pytest.mark.model, pytest.mark.slow]

CHECKS = (
    "promises",
    "agreement",
    "pushed_weights",
    "turns_in_flight",
    "weights_that_do_not_fit",
    "a_failure_is_told",
    "closed",
)


@pytest.fixture(scope="module")
def results(root: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the script found; .venv-vllm is made when it is missing."""
    subprocess.run([root / "scripts" / "vllm.sh"], check=True, cwd=root)
    scratch = tmp_path_factory.mktemp("engine")
    export_folder(*load_model(weights), scratch / "model")
    environment = vllm_environment() | {"JAX_PLATFORMS": "cpu"}
    script = root / "tests" / "agent" / "policies" / "engine_checks.py"
    done = subprocess.run(
        [root / ".venv-vllm" / "bin" / "python", script, scratch / "model"],
        cwd=scratch, env=environment, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"promises')]
    assert lines, f"exit code {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    found: dict[str, str] = json.loads(lines[-1])
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_the_engine_in_process(check: str, results: dict[str, str]) -> None:
    assert results[check] == "passed", results[check]
