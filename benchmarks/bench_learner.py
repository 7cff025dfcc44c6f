"""Prefix-tree rows against one padded row a sequence: seconds and tokens of the same gradient.

Random weights in SmolLM2-135M's shape; groups as the quickstart makes them: a prompt of 110 tokens,
a sampled turn, the failing output, a second sampled turn. Both sides run the same compiled function
over their own rows, in turn, and their gradients are compared. `--groups`, `--repeats`, `--tiny`.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time

import jax
import numpy as np

from patchgym.trainer.batching import Batch, TrainSequence, flat_rows, pack
from patchgym.trainer.learner import Learner
from patchgym.trainer.learner_config import LearnerConfig
from patchgym.trainer.model.config import ModelConfig
from patchgym.trainer.model.decoder import init_params

SMOLLM2 = ModelConfig(
    vocabulary=49152,
    width=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    ffn=1536,
    rope_theta=1e5,
)
TINY = ModelConfig(vocabulary=512, width=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=128)


def sequence(rng: np.random.Generator, prompt: np.ndarray, vocabulary: int) -> TrainSequence:
    """One member: prompt, sampled turn, failing output, sampled turn."""
    sizes = [len(prompt), *rng.integers([20, 40, 20], [49, 70, 49])]
    mask = np.repeat([False, True, False, True], sizes)
    tokens = rng.integers(1, vocabulary, len(mask)).astype(np.int32)
    tokens[: len(prompt)] = prompt
    return TrainSequence(
        tokens=tokens,
        loss_mask=mask,
        sampler_logprobs=np.where(mask, -np.log(vocabulary), 0.0).astype(np.float32),
        advantage=float(rng.normal()),
    )


def make_groups(count: int, vocabulary: int) -> list[list[TrainSequence]]:
    """`count` groups of eight."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(1, vocabulary, 110).astype(np.int32) for _ in range(count)]
    return [[sequence(rng, prompt, vocabulary) for _ in range(8)] for prompt in prompts]


def flops(model: ModelConfig, batch: Batch) -> float:
    """Matrix-product FLOPs of real tokens: 6 a layer weight, 8 a head weight (logits twice)."""
    head = model.vocabulary * model.width
    reads = sum(row.reads for row in batch.rows)
    attention = 12 * model.layers * model.heads * model.head_dim
    pairs = sum(float((row.positions[: row.used] + 1).sum()) for row in batch.rows)
    layers = model.parameters - head
    return 6.0 * layers * batch.tree_tokens + 8.0 * head * reads + attention * pairs


def compare(learner: Learner, sides: dict[str, Batch], repeats: int) -> dict[str, object]:
    """Time both sides in turn, print a line each, and return what RESULT holds."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    gradients = [learner.gradient(batch)[1] for batch in sides.values()]  # compiles, too
    for _ in range(repeats):
        for name, batch in sides.items():
            started = time.perf_counter()
            jax.block_until_ready(learner.gradient(batch))
            seconds[name].append(time.perf_counter() - started)
    best = {name: min(values) for name, values in seconds.items()}
    for name, batch in sides.items():
        print(
            f"{name}: {best[name]:.2f} s, {batch.padded_tokens} tokens in {len(batch.rows)} rows "
            f"({batch.tree_tokens} real), {flops(learner.model, batch) / best[name] / 1e9:.0f} "
            "GFLOP/s without padding"
        )
    pairs = zip(*(jax.tree.leaves(gradient) for gradient in gradients), strict=True)
    tree, flat = sides["tree"], sides["flat"]
    return {
        "flat_over_tree_seconds": round(best["flat"] / best["tree"], 2),
        "flat_over_tree_tokens": round(flat.padded_tokens / tree.padded_tokens, 2),
        "max_gradient_difference": max(float(abs(a - b).max()) for a, b in pairs),
        "tree_tokens_per_second": round(tree.tree_tokens / best["tree"], 1),
        "tree_gflops": round(flops(learner.model, tree) / best["tree"] / 1e9, 1),
        "seconds": seconds,
    }


def main() -> None:
    """Measure, print a table and the RESULT line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=2, help="groups of eight sequences")
    parser.add_argument("--repeats", type=int, default=2, help="timed runs of each side")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the script")
    options = parser.parse_args()
    model = TINY if options.tiny else SMOLLM2
    config = LearnerConfig()
    groups = make_groups(options.groups, model.vocabulary)
    longest = max(len(member.tokens) for group in groups for member in group)
    sides = {
        "tree": pack(groups, row_tokens=config.row_tokens),
        "flat": flat_rows(groups, length=-(-longest // 64) * 64),
    }
    learner = Learner(config, model, init_params(model, 0))
    outcome = compare(learner, sides, options.repeats)
    outcome["peak_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    outcome["versions"] = {"jax": jax.__version__, "python": platform.python_version()}
    print("RESULT", json.dumps(outcome))


if __name__ == "__main__":
    main()
