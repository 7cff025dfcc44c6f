"""How fast vLLM on CPU samples, run inside `.venv-vllm` by `bench_sampler.py --vllm`.

    python benchmarks/peers/vllm_decode.py MODEL_FOLDER DTYPE PROMPT_TOKENS

Prints `INNER` and tokens a second by the number of turns at once.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}

import anyio
import numpy as np

from patchgym.agent.policies import VllmEngine
from patchgym.agent.policy import SampleRequest

NEW = 48


async def measure(folder: str, dtype: str, prompt: int) -> dict[str, float]:
    """Tokens a second at 1, 8 and 32 turns."""
    options = {
        "dtype": dtype,
        "max_model_len": 1024,
        "enforce_eager": True,
        "max_num_seqs": 32,
        "kv_cache_memory_bytes": 1 << 30,
        "block_size": 32,
    }
    found = {}
    async with VllmEngine(folder, options=options) as engine:
        tokens = tuple(np.random.default_rng(0).integers(100, 40_000, prompt).tolist())

        async def turn(seed: int) -> int:
            request = SampleRequest(
                rollout_id=str(seed), tokens=tokens, max_new_tokens=NEW, seed=seed
            )
            return len((await engine.sample(request)).tokens)

        await turn(0)  # reads the prompt in, which the prefix cache keeps
        for width in (1, 8, 32):
            counts: list[int] = []

            async def one(seed: int, counts: list[int] = counts) -> None:
                counts.append(await turn(seed))

            start = time.perf_counter()
            async with anyio.create_task_group() as group:
                for seed in range(width):
                    group.start_soon(one, seed)
            found[str(width)] = sum(counts) / (time.perf_counter() - start)
    return found


if __name__ == "__main__":
    print("INNER", json.dumps(anyio.run(measure, sys.argv[1], sys.argv[2], int(sys.argv[3]))))
