"""What Hugging Face's transformers computes, by a script: it runs in .venv-vllm, where torch is.

Usage: python hf_reference.py JOBS.json. Each job has `folder`, `tokens` (rows of one length) and
`logprobs` (the file to write, [B, T, V]). With `create` (model_type and settings) a random float32
model is made and saved there first, in shards of `shard` bytes; else the folder is loaded, and
computes in `dtype`.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

torch: Any = import_module("torch")
transformers: Any = import_module("transformers")


def created(job: dict[str, Any]) -> Any:
    """A random model in float32, none of whose norms and biases is at its start, saved."""
    config = transformers.AutoConfig.for_model(**job["create"])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.data += 0.3 * torch.randn_like(weight)
    model.save_pretrained(job["folder"], max_shard_size=job["shard"])
    return model


def loaded(job: dict[str, Any]) -> Any:
    """The model in a folder; fails for a weight that is missing or has no place."""
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        job["folder"],
        attn_implementation="eager",
        dtype=getattr(torch, job["dtype"]),
        output_loading_info=True,
    )
    wrong = {kind: names for kind, names in found.items() if names}
    if wrong:
        raise SystemExit(f"{job['folder']}: {wrong}")
    return model


def main(jobs: list[dict[str, Any]]) -> None:
    """Do `jobs`, one after the other."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for job in jobs:
        model = created(job) if "create" in job else loaded(job)
        with torch.no_grad():
            logits = model.eval()(torch.tensor(job["tokens"])).logits
            np.save(job["logprobs"], torch.log_softmax(logits, -1).numpy())


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
