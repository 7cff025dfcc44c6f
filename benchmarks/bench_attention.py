"""Attention by blocks against all scores at once, on CPU: seconds and memory of one layer's
forward and backward pass, over a prefix-tree row and over a row of packed sequences.

SmolLM2-135M's heads (9 query, 3 key, 64 each), float32. The tree holds groups of multi-turn
trajectories with a shared prompt, some forked after a turn, lengths lognormal; the packed row holds
the same trajectories side by side, as many as fit. Both implementations run in turn, and their
gradients are compared. How evenly context parallelism would share the blocks is counted, too.
`--tokens`, `--block`, `--repeats`, `--ranks`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from patchgym.trainer.attention import (
    Implementation,
    attend,
    block_plan,
    context_order,
    visited_blocks,
)
from patchgym.trainer.tree import Branch, TreeRow, prefix_tree, tree_row, tree_rows

HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
SIDES: tuple[Implementation, ...] = ("dense", "blocked")
Gradient = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]


def make_group(rng: np.random.Generator, tokens: int) -> list[Branch]:
    """Eight trajectories of about `tokens` tokens; every second forks off the one before it."""
    prompt = rng.integers(1, 49152, int(tokens * 0.35)).astype(np.int32)
    members: list[Branch] = []
    for index in range(8):
        start = prompt
        if index % 2:
            before = members[-1].tokens
            start = before[: int(rng.integers(len(prompt), len(before)))]
        size = int(np.clip(rng.lognormal(np.log(tokens * 0.5), 0.6), 8, tokens * 1.5))
        ids = np.concatenate([start, rng.integers(1, 49152, size).astype(np.int32)])
        masked = (np.arange(len(ids)) >= len(prompt)) & (np.arange(len(ids)) // 40 % 3 != 2)
        logprobs = np.full(len(ids), -1, np.float32)
        members.append(Branch(tokens=ids, masked=masked, logprobs=logprobs, advantage=1.0))
    return members


def packed_row(branches: Sequence[Branch], length: int) -> TreeRow:
    """As many of `branches` as fit, side by side, nothing shared."""
    trees, left = [], length
    for branch in branches:
        if len(branch.tokens) <= left:
            trees.append(prefix_tree([branch]))
            left -= len(branch.tokens)
    return tree_row(trees, length)


def gradient_of(implementation: Implementation, block: int) -> Gradient:
    """Gradients of q, k and v; the plan is made outside, as a step makes it once for all layers."""

    def total(q: jax.Array, k: jax.Array, v: jax.Array, ends: jax.Array, plan: Any) -> jax.Array:
        mixed = attend(
            q, k, v, ends, scale=0.125, block=block, implementation=implementation, plan=plan
        )
        return jnp.sum(mixed * q)

    return jax.grad(total, (0, 1, 2))


def measure(name: str, row: TreeRow, block: int, repeats: int) -> dict[str, float]:
    """Run both sides over `row` in turn; print a line each, return the ratios."""
    rng = np.random.default_rng(1)
    shapes = [(1, heads, len(row.tokens), HEAD_DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    ends = jnp.asarray(row.ends)[None]
    plan = block_plan(ends, block)
    programs = {
        side: jax.jit(gradient_of(side, block)).lower(q, k, v, ends, plan).compile()
        for side in SIDES
    }
    run = {side: partial(program, q, k, v, ends, plan) for side, program in programs.items()}
    gradients = {side: jax.block_until_ready(run[side]()) for side in SIDES}
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(repeats):
        for side in SIDES:
            started = time.perf_counter()
            jax.block_until_ready(run[side]())
            seconds[side].append(time.perf_counter() - started)
    memory = {}
    for side in SIDES:
        analysis = programs[side].memory_analysis()
        assert analysis is not None
        memory[side] = analysis.temp_size_in_bytes
        print(f"{name} {side}: {min(seconds[side]):.3f} s, {memory[side] / 2**20:.0f} MiB")
    blocks = -(-len(row.tokens) // block)
    visited = int(visited_blocks(plan)[0])
    print(f"{name} blocks: {visited} of {blocks * (blocks + 1) // 2} causal ones visited")
    differences = jax.tree.map(lambda a, b: float(abs(a - b).max()), *gradients.values())
    return {
        "dense_over_blocked_seconds": round(min(seconds["dense"]) / min(seconds["blocked"]), 2),
        "dense_over_blocked_memory": round(memory["dense"] / memory["blocked"], 1),
        "causal_over_visited_blocks": round(blocks * (blocks + 1) / 2 / visited, 2),
        "max_gradient_difference": max(differences),
    }


def heaviest_rank(row: TreeRow, block: int, ranks: int) -> float:
    """Blocks that the busiest of `ranks` visits over the mean, the row split over them."""
    ends = jnp.asarray(row.ends)
    blocks = context_order(len(row.ends), block, ranks)[::block] // block
    shares = [
        int(visited_blocks(block_plan(ends, block, query_blocks=jnp.asarray(own))))
        for own in blocks.reshape(ranks, -1)
    ]
    return round(max(shares) / float(np.mean(shares)), 3)


def main() -> None:
    """Measure, print a table and the RESULT line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a row")
    parser.add_argument("--block", type=int, default=128, help="tokens of a block")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each side")
    parser.add_argument("--ranks", type=int, default=4, help="ranks that share a row's blocks")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    groups = [make_group(rng, options.tokens // 5) for _ in range(4)]
    branches = [branch for group in groups for branch in group]
    rows = tree_rows(groups, options.tokens)
    flat, stored = sum(len(branch.tokens) for branch in branches), sum(row.used for row in rows)
    print(f"{len(branches)} sequences: {flat} tokens one by one, {stored} in {len(rows)} tree rows")
    outcome: dict[str, object] = {"flat_over_tree_tokens": round(flat / stored, 2)}
    cases = {"tree": rows[0], "packed": packed_row(branches, options.tokens)}
    for name, row in cases.items():
        measured = measure(name, row, options.block, options.repeats)
        measured["heaviest_rank_over_mean"] = heaviest_rank(row, options.block, options.ranks)
        outcome[name] = measured
    outcome["versions"] = {"jax": jax.__version__, "python": platform.python_version()}
    print("RESULT", json.dumps(outcome))


if __name__ == "__main__":
    main()
