"""How fast the sampler is, and what continuous batching and the prefix cache are worth.

    python benchmarks/bench_sampler.py [--repeats 3] [--vllm]

Each comparison runs its two sides in turn, on the same requests, after one round of each that
compiles. Lengths are fixed in advance (no end of turn is waited for), so that both sides sample
exactly the same number of tokens.

The bound: a decoding step reads every weight once, whatever the number of turns in it, so that no
more than turns x bandwidth / bytes of the weights tokens can come out in a second. The bandwidth is
measured here, as both cores read a gigabyte. `--vllm` has vLLM on CPU (`make vllm`) do the same.
"""

from __future__ import annotations

import argparse
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
from patchgym.trainer.sampler_config import SamplerConfig
from patchgym.trainer.weights import export_folder

Loaded = tuple[ModelConfig, Params, Tokenizer]
Workload = Callable[[JaxSampler], Awaitable[None]]

SLOTS = 16
PROMPT_TOKENS = 220


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vllm", action="store_true")
    known = parser.parse_args()
    repeats = known.repeats
    config, params, tokenizer = load_model(ensure_weights(cache_dir()))
    beside = _vllm((config, params, tokenizer)) if known.vllm else {}
    # Without end-of-turn ids a turn is exactly as long as it was asked to be.
    tokenizer.end_ids = frozenset()
    found = anyio.run(_measure, (config, params, tokenizer), repeats)
    for key, speed in beside.items():
        ours = found[f"tokens_per_second_{key}"]
        assert isinstance(ours, float)
        found[f"vs_vllm_cpu_{key}"] = round(ours / speed, 3)
        print(f"vllm, tokens a second at {key:8} {speed:8.1f}")
    print("RESULT", json.dumps(found))


def _vllm(loaded: Loaded) -> dict[str, float]:
    """Tokens a second of vLLM on CPU, in float32 as ours, by turns at once."""
    root = Path(__file__).resolve().parent.parent
    python = root / ".venv-vllm" / "bin" / "python"
    if not python.exists():
        raise SystemExit("no .venv-vllm here: run `make vllm` first, or leave --vllm out")
    with tempfile.TemporaryDirectory() as folder:
        export_folder(*loaded, Path(folder))
        words = [str(python), str(root / "benchmarks" / "peers" / "vllm_decode.py"), folder]
        done = subprocess.run(
            [*words, "float32", str(PROMPT_TOKENS)], capture_output=True, text=True, check=False
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
    speeds = {f"tokens_per_second_{n}": await _speed(loaded, n) for n in (1, 8, 32)}
    for name, speed in speeds.items():
        print(f"{name:32} {speed:8.1f}")
    bandwidth = _bandwidth()
    step = bandwidth / (4 * loaded[0].parameters)
    bounds = {n: speeds[f"tokens_per_second_{n}"] / (n * step) for n in (1, 8, 32)}
    for count, share in bounds.items():
        print(f"share_of_bandwidth_bound_{count:<7} {share:8.3f}")
    prefill = await _prefill_speed(loaded)
    print(f"{'prefill_tokens_per_second':32} {prefill:8.1f}")
    refill = await _compare(loaded, repeats, (_in_batches, 512), (_continuously, 512))
    print(f"{'continuous_vs_batches':32} {statistics.median(refill):8.2f}")
    cached = await _compare(loaded, repeats, (_groups, 0), (_groups, 512))
    print(f"{'prefix_cache':32} {statistics.median(cached):8.2f}")
    return {
        "continuous_vs_batches": round(statistics.median(refill), 3),
        "prefix_cache": round(statistics.median(cached), 3),
        **{name: round(speed, 1) for name, speed in speeds.items()},
        "prefill_tokens_per_second": round(prefill, 1),
        "bandwidth_gb_per_second": round(bandwidth / 1e9, 1),
        **{f"share_of_bandwidth_bound_{n}": round(share, 3) for n, share in bounds.items()},
        "spread": {"continuous_vs_batches": _spread(refill), "prefix_cache": _spread(cached)},
        "versions": {"jax": version("jax"), "python": platform.python_version()},
    }


def _spread(ratios: Sequence[float]) -> list[float]:
    return [round(min(ratios), 3), round(max(ratios), 3)]


def _sampler(loaded: Loaded, slots: int = SLOTS, cache_mib: int = 512) -> JaxSampler:
    config = SamplerConfig(slots=slots, context=1024, prefix_cache_mib=cache_mib)
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


async def _speed(loaded: Loaded, slots: int) -> float:
    """Sampled tokens a second of decoding with `slots` turns running."""
    async with _sampler(loaded, slots) as sampler:
        await _all(sampler, [_request(seed, 48) for seed in range(slots)])
        before = sampler.statistics()
        await _all(sampler, [_request(seed, 48) for seed in range(slots)])
        return _rate(before, sampler.statistics(), "sampled_tokens", "decode")


async def _prefill_speed(loaded: Loaded) -> float:
    """Context tokens a second."""
    async with _sampler(loaded, 1, cache_mib=0) as sampler:
        await sampler.sample(_request(0, 1))
        before = sampler.statistics()
        for group in range(4):
            await sampler.sample(_request(0, 1, group))
        return _rate(before, sampler.statistics(), "prefill_tokens", "prefill")


def _rate(before: SamplerStatistics, after: SamplerStatistics, count: str, kind: str) -> float:
    seconds = after.busy_seconds[kind] - before.busy_seconds[kind]
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
