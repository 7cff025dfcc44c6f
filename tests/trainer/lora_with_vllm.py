"""What vLLM computes with an adapter, by a script: it runs in .venv-vllm, on CPU.

Usage: python lora_with_vllm.py MODEL_FOLDER ADAPTER_FOLDER TOKENS.json. Prints one line of JSON:
the logprob of each token but the first, `with` and `without` the adapter.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(model: str, adapter: str, tokens: list[int]) -> dict[str, list[float]]:
    """Logprobs of `tokens` in float32."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    vllm: Any = import_module("vllm")
    requests: Any = import_module("vllm.lora.request")
    engine = vllm.LLM(
        model, dtype="float32", enforce_eager=True, max_model_len=128, max_num_seqs=4,
        kv_cache_memory_bytes=64 << 20, block_size=32, enable_lora=True, max_loras=1,
        max_lora_rank=8, logprobs_mode="raw_logprobs",
    )  # fmt: skip
    asked = vllm.SamplingParams(max_tokens=1, prompt_logprobs=0)

    def logprobs(request: Any) -> list[float]:
        (answer,) = engine.generate(
            {"prompt_token_ids": tokens}, asked, lora_request=request, use_tqdm=False
        )
        found = zip(tokens[1:], answer.prompt_logprobs[1:], strict=True)
        return [float(entry[token].logprob) for token, entry in found]

    return {"with": logprobs(requests.LoRARequest("ours", 1, adapter)), "without": logprobs(None)}


if __name__ == "__main__":
    found = main(sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text()))
    print(json.dumps(found))  # noqa: T201
