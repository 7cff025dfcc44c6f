"""How fast the sampler is, and what continuous batching and the prefix cache are worth.

    python benchmarks/bench_sampler.py [--repeats 3] [--vllm]

Each comparison runs its two sides in turn, on the same requests, after one round of each that
compiles. Lengths are fixed in advance (no end of turn is waited for), so that both sides sample
exactly the same number of tokens.

Decoding is measured in float32 and in bfloat16, in turn. The bound: a decoding step reads every
weight once, whatever the number of turns in it, so that no more than turns x bandwidth / bytes of
the weights tokens can come out in a second. `share_of_bound_with_cache` also counts the keys and
values that the step reads. The bandwidth is measured here, as both cores read a gigabyte. `--vllm`
has vLLM on CPU (`make vllm`) do the same, in both types.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import anyio
import numpy as np
import numpy.typing as npt

from patchgym.agent.policy import SampleRequest
from patchgym.datasets.cache import cache_dir
from patchgym.trainer.model import ModelConfig, Tokenizer, ensure_weights, load_model
from patchgym.trainer.model.decoder import Params
from patchgym.trainer.sampler import JaxSampler, SamplerStatistics
from patchgym.trainer.sampler.engine import window_for
from patchgym.trainer.sampler_config import Dtype, SamplerConfig
from patchgym.trainer.weights import export_folder

Loaded = tuple[ModelConfig, Params, Tokenizer]
Workload = Callable[[JaxSampler], Awaitable[None]]

DTYPES: tuple[Dtype, ...] = ("float32", "bfloat16")
BYTES: dict[Dtype, int] = {"float32": 4, "bfloat16": 2}
COUNTS = (1, 8, 32)
"""Turns at once."""
SLOTS = 16
PROMPT_TOKENS = 220
NEW_TOKENS = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vllm", action="store_true")
    known = parser.parse_args()
    repeats = known.repeats
    config, params, tokenizer = load_model(ensure_weights(cache_dir()))
    beside: dict[Dtype, dict[str, float]] = {
        d: _vllm((config, params, tokenizer), d) for d in DTYPES if known.vllm
    }
    # Without end-of-turn ids a turn is exactly as long as it was asked to be.
    tokenizer.end_ids = frozenset()
    found = anyio.run(_measure, (config, params, tokenizer), repeats)
    for dtype, theirs in beside.items():
        for key, speed in theirs.items():
            ours = found[f"tokens_per_second_{key}{_suffix(dtype)}"]
            assert isinstance(ours, float)
            found[f"vs_vllm_cpu_{key}{_suffix(dtype)}"] = round(ours / speed, 3)
            print(f"vllm, {dtype}, tokens a second at {key:8} {speed:8.1f}")
    print("RESULT", json.dumps(found))


def _suffix(dtype: Dtype) -> str:
    """What names of results end with; float32 was first."""
    return "" if dtype == "float32" else f"_{dtype}"


def _vllm(loaded: Loaded, dtype: Dtype) -> dict[str, float]:
    """Tokens a second of vLLM on CPU, by turns at once."""
    root = Path(__file__).resolve().parent.parent
    python = root / ".venv-vllm" / "bin" / "python"
    if not python.exists():
        raise SystemExit("no .venv-vllm here: run `make vllm` first, or leave --vllm out")
    with tempfile.TemporaryDirectory() as folder:
        export_folder(*loaded, Path(folder))
        words = [str(python), str(root / "benchmarks" / "peers" / "vllm_decode.py"), folder]
        done = subprocess.run(
            [*words, dtype, str(PROMPT_TOKENS)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("INNER ")]
    speeds: dict[str, float] = json.loads(line.removeprefix("INNER "))
    return speeds


def _bandwidth() -> float:
    """Bytes a second that all cores together read."""
    cores = len(os.sched_getaffinity(0))
    parts = [np.ones(1 << 27, np.float32) for _ in range(cores)]

    def read(part: npt.NDArray[np.float32]) -> float:
        return float(part.max())

    best = 0.0
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(3):
            start = time.perf_counter()
            list(pool.map(read, parts))
            best = max(best, sum(part.nbytes for part in parts) / (time.perf_counter() - start))
    return best


async def _measure(loaded: Loaded, repeats: int) -> dict[str, object]:
    print("load", " ".join(f"{load:.1f}" for load in os.getloadavg()))
    rounds = {count: await _speeds(loaded, count, repeats) for count in COUNTS}
    bandwidth = _bandwidth()
    decoding = _decoding(loaded[0], rounds, bandwidth)
    for name, value in decoding.items():
        print(f"{name:44} {value:8.3f}")
    prefill = await _prefill_speed(loaded)
    print(f"{'prefill_tokens_per_second':32} {prefill:8.1f}")
    refill = await _compare(loaded, repeats, (_in_batches, 512), (_continuously, 512))
    print(f"{'continuous_vs_batches':32} {statistics.median(refill):8.2f}")
    cached = await _compare(loaded, repeats, (_groups, 0), (_groups, 512))
    print(f"{'prefix_cache':32} {statistics.median(cached):8.2f}")
    return {
        "continuous_vs_batches": round(statistics.median(refill), 3),
        "prefix_cache": round(statistics.median(cached), 3),
        **{name: round(value, 3) for name, value in decoding.items()},
        "prefill_tokens_per_second": round(prefill, 1),
        "bandwidth_gb_per_second": round(bandwidth / 1e9, 1),
        "spread": {
            "continuous_vs_batches": _spread(refill),
            "prefix_cache": _spread(cached),
            **{f"bfloat16_vs_float32_{n}": _spread(_ratios(rounds[n])) for n in COUNTS},
        },
        "versions": {"jax": version("jax"), "python": platform.python_version()},
    }


def _decoding(
    model: ModelConfig, rounds: dict[int, dict[Dtype, list[float]]], bandwidth: float
) -> dict[str, float]:
    """Speeds, their ratios, and shares of what `bandwidth` (bytes a second) allows, by name."""
    found = {}
    for count, by_type in rounds.items():
        found[f"bfloat16_vs_float32_{count}"] = statistics.median(_ratios(by_type))
        for dtype, speeds in by_type.items():
            speed, name = statistics.median(speeds), f"{count}{_suffix(dtype)}"
            weights = BYTES[dtype] * model.parameters
            token = 2 * model.layers * model.kv_heads * model.head_dim * BYTES["float32"]
            cache = count * window_for(PROMPT_TOKENS + 1 + NEW_TOKENS) * token
            found[f"tokens_per_second_{name}"] = speed
            found[f"share_of_bandwidth_bound_{name}"] = speed / count * weights / bandwidth
            found[f"share_of_bound_with_cache_{name}"] = (
                speed / count * (weights + cache) / bandwidth
            )
    return found


def _ratios(by_type: dict[Dtype, list[float]]) -> list[float]:
    """How many times as fast bfloat16 is, once a repeat."""
    pairs = zip(by_type["bfloat16"], by_type["float32"], strict=True)
    return [fast / slow for fast, slow in pairs]


def _spread(ratios: Sequence[float]) -> list[float]:
    return [round(min(ratios), 3), round(max(ratios), 3)]


def _sampler(
    loaded: Loaded, slots: int = SLOTS, cache_mib: int = 512, dtype: Dtype = "float32"
) -> JaxSampler:
    config = SamplerConfig(slots=slots, context=1024, prefix_cache_mib=cache_mib, dtype=dtype)
    return JaxSampler(config, *loaded)


def _request(seed: int, new: int, group: int = 0) -> SampleRequest:
    """A request whose prompt is its group's own."""
    prompt = np.random.default_rng(group).integers(100, 40_000, PROMPT_TOKENS)
    return SampleRequest(
        rollout_id=str(seed), tokens=tuple(prompt.tolist()), max_new_tokens=new, seed=seed
    )


async def _all(sampler: JaxSampler, requests: Sequence[SampleRequest]) -> None:
    async with anyio.create_task_group() as group:
        for request in requests:
            group.start_soon(sampler.sample, request)


async def _speeds(loaded: Loaded, slots: int, repeats: int) -> dict[Dtype, list[float]]:
    """Sampled tokens a second of decoding with `slots` turns running, a repeat each, by type."""
    found: dict[Dtype, list[float]] = {dtype: [] for dtype in DTYPES}
    async with contextlib.AsyncExitStack() as opened:
        samplers: dict[Dtype, JaxSampler] = {
            dtype: await opened.enter_async_context(_sampler(loaded, slots, dtype=dtype))
            for dtype in DTYPES
        }
        for repeat in range(repeats + 1):
            for dtype, sampler in samplers.items():
                before = sampler.statistics()
                await _all(sampler, [_request(seed, NEW_TOKENS) for seed in range(slots)])
                speed = _rate(before, sampler.statistics(), "sampled_tokens", "decode")
                if repeat:  # the first round compiles
                    found[dtype].append(speed)
    return found


async def _prefill_speed(loaded: Loaded) -> float:
    """Context tokens a second."""
    async with _sampler(loaded, 1, cache_mib=0) as sampler:
        await sampler.sample(_request(0, 1))
        before = sampler.statistics()
        for group in range(4):
            await sampler.sample(_request(0, 1, group))
        return _rate(before, sampler.statistics(), "prefill_tokens", "prefill")


def _rate(before: SamplerStatistics, after: SamplerStatistics, count: str, kind: str) -> float:
    seconds = after.busy_seconds[kind] - before.busy_seconds.get(kind, 0.0)
    return float((getattr(after, count) - getattr(before, count)) / seconds)


def _lengths() -> list[int]:
    """Turns' lengths in tokens: most are short, some are long, as with agents."""
    drawn = np.random.default_rng(0).lognormal(3.0, 0.7, 4 * SLOTS)
    return [int(length) for length in np.clip(drawn, 4, 120)]


async def _continuously(sampler: JaxSampler) -> None:
    """A slot is refilled the moment it frees."""
    await _all(sampler, [_request(seed, new) for seed, new in enumerate(_lengths())])


async def _in_batches(sampler: JaxSampler) -> None:
    """The next batch starts when all of the last one is done."""
    requests = [_request(seed, new) for seed, new in enumerate(_lengths())]
    for start in range(0, len(requests), SLOTS):
        await _all(sampler, requests[start : start + SLOTS])


async def _groups(sampler: JaxSampler) -> None:
    """Groups of eight rollouts of one task, two turns each."""

    async def rollout(task: int, member: int) -> None:
        first = _request(member, 32, task)
        completion = await sampler.sample(first)
        answer = tuple(range(200, 240))
        second = SampleRequest(
            rollout_id=first.rollout_id,
            tokens=(*first.tokens, *completion.tokens, *answer),
            max_new_tokens=32,
            seed=member,
        )
        await sampler.sample(second)

    round_ = time.monotonic_ns() % 1_000_000  # prompts that no earlier round has cached
    async with anyio.create_task_group() as group:
        for task in range(4):
            for member in range(8):
                group.start_soon(rollout, round_ + task, member)


async def _compare(
    loaded: Loaded, repeats: int, slow: tuple[Workload, int], fast: tuple[Workload, int]
) -> list[float]:
    """How many times as fast the second side is, once a repeat; a side is a workload and MiB."""
    async with (
        _sampler(loaded, cache_mib=slow[1]) as one,
        _sampler(loaded, cache_mib=fast[1]) as two,
    ):
        sides = ((slow[0], one), (fast[0], two))
        ratios = []
        for repeat in range(repeats + 1):
            seconds = []
            for workload, sampler in sides:
                start = time.perf_counter()
                await workload(sampler)
                seconds.append(time.perf_counter() - start)
            if repeat:  # the first round compiles
                ratios.append(seconds[0] / seconds[1])
        return ratios


if __name__ == "__main__":
    main()
