"""The reward stage: what fires on what, what slow scoring costs the trainer, what a repeat costs.

    python benchmarks/rewards.py [--count 20] [--only detection distributions stage repeats]

- detection: `count` patches of each of ten flaws and as many clean ones; the right component must
  fire on the flaw, none on a clean one.
- distributions: every component on gold, empty and `10 * count` injected-bug patches.
- stage: the trainer's wait as scoring slows down, with workers and inside the rollout, simulated.
- repeats: eight copies of a patch in a group, and the same scored again from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import reward_corpus
import reward_stage

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards import RewardConfig, Scorer, ScoreStore, Verdict
from patchgym.trainer.statistics import percentile

COPIES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(PARTS))
    known = parser.parse_args()
    found: dict[str, Any] = {}
    for name, part in PARTS.items():
        if not known.only or name in known.only:
            found[name] = part(known.count)
    versions = {
        "patchgym": version("patchgym"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    print("RESULT", json.dumps({**found, "versions": versions}))


def _say(words: str) -> None:
    print(words, flush=True)


def _detection(count: int) -> dict[str, Any]:
    cases = list(reward_corpus.detection_cases(count))
    rewards, seconds = reward_corpus.timed(cases, _say)
    found = reward_corpus.detection(cases, rewards)
    for kind, share in found["detected"].items():
        _say(f"{kind:24} {share:6.1%} by {reward_corpus.KINDS[kind]}")
    _say(f"{'clean':24} {found['clean_fired']:6.1%} {found['clean_fired_by']}")
    return {
        **found,
        "unknown": reward_corpus.unknown(rewards),
        "patches_per_minute": round(60 * len(cases) / seconds, 1),
    }


def _distributions(count: int) -> dict[str, Any]:
    cases = list(reward_corpus.distribution_cases(10 * count))
    rewards, _ = reward_corpus.timed(cases, _say)
    found = reward_corpus.distributions(cases, rewards)
    for name, components in found.items():
        for component, spread in components.items():
            _say(f"{name:10} {component:18} {json.dumps(spread)}")
    return {"values": found, "unknown": reward_corpus.unknown(rewards)}


def _stage(count: int) -> dict[str, Any]:
    found = {}
    for factor in (1, 3, 10, 30):
        for inside in (False, True):
            where = "inside" if inside else "workers"
            one = reward_stage.measure(14, factor, inside=inside)
            found[f"{where}_x{factor}"] = one
            _say(f"reward {factor:3} x 0.1 s, {where:8} {json.dumps(one)}")
    return found


def _repeats(count: int) -> dict[str, Any]:
    return anyio.run(_measure_repeats, 5 * count)


async def _measure_repeats(count: int) -> dict[str, Any]:
    """The judge sleeps a second here: what is measured is what is around it."""
    tasks = bundled_tasks("train")[:count]
    judged: list[str] = []

    async def judge(task: Task, diff: bytes) -> Verdict:
        if diff:
            judged.append(task.id)
        await anyio.sleep(1)
        return Verdict(status="resolved", evidence="report")

    with tempfile.TemporaryDirectory() as folder:
        first = await _scored(judge, tasks, Path(folder), copies=COPIES)
        taken = len(judged)
        again = await _scored(judge, tasks, Path(folder), copies=1)
    return {
        "judged_per_group_of_8": taken / len(tasks),
        "judged_again": len(judged) - taken,
        "hit_ms": {f"p{s * 100:.0f}": round(1e3 * percentile(again, s), 2) for s in (0.5, 0.99)},
        "first_ms_p50": round(1e3 * percentile(first, 0.5), 1),
    }


async def _scored(
    judge: Callable[..., Any], tasks: tuple[Task, ...], folder: Path, *, copies: int
) -> list[float]:
    """Seconds of each scoring; a scorer of its own, so that only the store is shared."""
    scorer = Scorer(
        RewardConfig.of(),
        verdict=judge,
        repositories=repositories_dir(),
        deadline=60,
        store=ScoreStore(folder),
    )
    seconds: list[float] = []

    async def one(task: Task) -> None:
        start = time.perf_counter()
        await scorer.score(task, task.gold_patch.encode())
        seconds.append(time.perf_counter() - start)

    await scorer.score(tasks[0], b"")  # imports and the store's opening are not a hit's cost
    for task in tasks:
        async with anyio.create_task_group() as group:
            for _ in range(copies):
                group.start_soon(one, task)
    return seconds


PARTS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "detection": _detection,
    "distributions": _distributions,
    "stage": _stage,
    "repeats": _repeats,
}

if __name__ == "__main__":
    main()
