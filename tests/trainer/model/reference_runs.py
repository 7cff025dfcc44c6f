"""Has transformers compute, in its own environment; and what it computed with real weights, kept.

Usage: python reference_runs.py PYTHON, where PYTHON is that of .venv-vllm: computes the kept values
again. A test that ran this each time would take half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

KEPT = Path(__file__).parent / "pretrained_reference.json"
"""Log-probabilities of SmolLM2-135M-Instruct's weights by transformers 5.19 in float64: for each
of `tokens`, of what follows it, at every `stride`-th id of the vocabulary."""

STRIDE = 1536
TEXT = "def area(width, height):\n    return width * height\n"


def run_reference(python: Path, scratch: Path, jobs: Sequence[dict[str, Any]]) -> None:
    """Have transformers do `jobs` in one process; see hf_reference.py."""
    (scratch / "jobs.json").write_text(json.dumps(jobs))
    script = Path(__file__).parent / "hf_reference.py"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    # In the working tree, `datasets` would be a folder of ours.
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [python, script, scratch / "jobs.json"],
        cwd=scratch, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]


def keep(python: Path) -> None:
    """Export the pretrained weights, have transformers compute with them, write `KEPT`."""
    from patchgym.datasets.cache import cache_dir
    from patchgym.trainer.model import ensure_weights, load_model
    from patchgym.trainer.weights import export_folder

    config, params, tokenizer = load_model(ensure_weights(cache_dir()))
    tokens = tokenizer.encode(TEXT)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        export_folder(config, params, tokenizer, scratch / "model")
        job = {"folder": str(scratch / "model"), "logprobs": str(scratch / "out.npy")}
        run_reference(python, scratch, [{"tokens": [tokens], "dtype": "float64", **job}])
        logprobs = np.load(scratch / "out.npy")[0, :, ::STRIDE]
    rows = [[round(float(value), 8) for value in row] for row in logprobs]
    lines = ",\n  ".join(json.dumps(row) for row in rows)
    head = f'"stride": {STRIDE},\n "tokens": {json.dumps(tokens)}'
    KEPT.write_text(f'{{{head},\n "logprobs": [\n  {lines}\n ]}}\n')


if __name__ == "__main__":
    keep(Path(sys.argv[1]).absolute())
