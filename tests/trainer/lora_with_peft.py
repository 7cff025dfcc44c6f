"""What PEFT computes with adapters, by a script: it runs in .venv-vllm, where torch is.

Usage: python lora_with_peft.py JOBS.json. Each job has `model` (a folder), `adapter` (another one),
`tokens` (rows of one length) and `logprobs` (the file to write, [B, T, V]). With `create` (r and
lora_alpha of PEFT's own configuration) a random adapter is made and saved there first; else the
folder's is loaded.
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
peft: Any = import_module("peft")

SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def created(base: Any, job: dict[str, Any]) -> Any:
    """An adapter whose B is not zero, made and saved by PEFT."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", target_modules=SEVEN, **job["create"])
    model = peft.get_peft_model(base, config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data += 0.3 * torch.randn_like(weight)
    model.save_pretrained(job["adapter"])
    return model


def loaded(base: Any, job: dict[str, Any]) -> Any:
    """The adapter in a folder; fails where PEFT doesn't take its tensors to the last one."""
    model = peft.PeftModel.from_pretrained(base, job["adapter"])
    names = peft.get_peft_model_state_dict(model).keys()
    with import_module("safetensors").safe_open(
        f"{job['adapter']}/adapter_model.safetensors", framework="pt"
    ) as saved:
        if wrong := names ^ set(saved.keys()):
            raise SystemExit(f"{job['adapter']}: PEFT has or lacks {sorted(wrong)}")
    return model


def main(jobs: list[dict[str, Any]]) -> None:
    """Do `jobs`, one after the other."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for job in jobs:
        base = transformers.AutoModelForCausalLM.from_pretrained(
            job["model"], attn_implementation="eager", dtype=torch.float32
        )
        model = created(base, job) if "create" in job else loaded(base, job)
        with torch.no_grad():
            logits = model.eval()(torch.tensor(job["tokens"])).logits
            np.save(job["logprobs"], torch.log_softmax(logits, -1).numpy())


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
