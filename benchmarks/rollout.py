"""Orchestration beside Tunix's agentic GRPO: the same simulated world, slots, groups, model size.

    python benchmarks/rollout.py [--steps 14] [--peer-python PATH] [--only NAME ...]

Each measurement runs in a process of its own, one after the other. The world: every turn of the
policy takes 0.05 to 0.15 s, every step of the environment a lognormal time of median 0.3 s and
sigma 1, reset and reward 0.1 s; four turns a rollout, four rollouts a group, eight groups a step,
32 slots. Draws are seeded and the same on both sides. The learner is real on both: a decoder of two
layers and width 32, updated on two simulated CPU devices there and on one here.

`--peer-python` is the Python of an environment with `google-tunix==0.1.7`; without one, it is made
in `.bench/tunix` by pip (about 2 GB).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio

from patchgym.trainer.config import RunConfig, load_config
from patchgym.trainer.simulation import Latency, SimulatedRun, World, simulate

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / "benchmarks" / "peers" / "tunix_agentic.py"
SLOTS, GROUP, GROUPS, WARMUP = 32, 4, 8, 3
TAIL = 3
"""Steps at the end that are not timed where rollouts run ahead: none is begun for steps past it."""
BASE: dict[str, str] = {
    "group.size": str(GROUP),
    "group.per_step": str(GROUPS),
    "rollout.in_flight": str(SLOTS),
    "rollout.max_turns": "4",
    "rollout.max_new_tokens": "24",
    "rollout.context_tokens": "256",
    "rollout.seconds": "600",
    "scoring.workers": str(SLOTS),
    "learner.row_tokens": "[192]",
}
MODES: dict[str, dict[str, str]] = {
    "on_policy": {"group.max_staleness": "0"},
    "on_policy_extra": {"group.max_staleness": "0", "group.extra": "4", "group.quorum": "3"},
    "staleness_1": {"group.max_staleness": "1"},
    "staleness_1_extra": {"group.max_staleness": "1", "group.extra": "4", "group.quorum": "3"},
    "asynchronous": {
        "group.max_staleness": "2",
        "group.asynchronous": "true",
        "group.quorum": "3",
    },
}
FAILURES = {"failing_steps": 0.02, "hanging": 0.06, "dying": 0.01}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=16, help="the first and last three are not timed"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--peer-python", default="")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--inner", default="", help=argparse.SUPPRESS)
    known = parser.parse_args()
    if known.inner:
        print("INNER", json.dumps(INNER[known.inner](known.steps)))
        return
    python = known.peer_python or str(_peer_environment())
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(known.repeats):
        # One side after the other in every round, so that both meet the same machine.
        for name in ("tunix", *INNER):
            if known.only and name not in known.only:
                continue
            one = _tunix(python, known.steps) if name == "tunix" else _inner(name, known.steps)
            found.setdefault(name, []).append(one)
            print(f"{name:16} {json.dumps(one)}", flush=True)
    print("RESULT", json.dumps(_summary(found)))


def _summary(found: dict[str, list[dict[str, Any]]]) -> dict[str, object]:
    """Ratios by the medians of the rounds, with their spread."""

    def median(name: str, key: str) -> float:
        return statistics.median(one[key] for one in found[name])

    result: dict[str, object] = {}
    spread: dict[str, list[float]] = {}
    for name in MODES:
        if name in found and "tunix" in found:
            ratio = median(name, "trajectories_per_s") / median("tunix", "trajectories_per_s")
            result[f"{name}_vs_tunix"] = round(ratio, 2)
            pairs = zip(found[name], found["tunix"], strict=True)
            each = [a["trajectories_per_s"] / b["trajectories_per_s"] for a, b in pairs]
            spread[f"{name}_vs_tunix"] = [round(min(each), 2), round(max(each), 2)]
        if name in found:
            result[f"slot_use_{name}"] = round(median(name, "slot_use"), 3)
            result[f"loop_blocked_{name}"] = round(median(name, "loop_blocked"), 4)
    if "tunix" in found:
        result["loop_blocked_tunix"] = round(median("tunix", "loop_blocked"), 4)
        result["slot_use_tunix"] = round(median("tunix", "slot_use"), 3)
    if "failures" in found and "asynchronous" in found:
        whole, broken = found["asynchronous"], found["failures"]
        kept = [
            b["trajectories_per_s"] / a["trajectories_per_s"]
            for a, b in zip(whole, broken, strict=True)
        ]
        pairs = zip(whole, broken, strict=True)
        left = statistics.median((1 - b["lost_share"]) / (1 - a["lost_share"]) for a, b in pairs)
        result["failures_throughput"] = round(statistics.median(kept), 3)
        result["failures_work_left"] = round(left, 3)
        result["failures_groups_lost"] = sum(one["groups_lost"] for one in broken)
    if "crowd" in found:
        for key in ("memory_gib", "loop_lag_p99", "rollouts"):
            result[f"crowd_{key}"] = found["crowd"][-1][key]
    return {
        **result,
        "spread": spread,
        "versions": {
            "patchgym": version("patchgym"),
            "tunix": found.get("tunix", [{}])[-1].get("version", ""),
            "jax": version("jax"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
    }


def _measure(mode: str, steps: int, world: World | None = None, **more: str) -> dict[str, Any]:
    """One training run in the simulated world."""
    config = load_config(
        None, list({**BASE, **MODES[mode], **more, "run.steps": str(steps)}.items())
    )
    with tempfile.TemporaryDirectory() as folder:
        run = anyio.run(simulate, config, world or World(), Path(folder))
    return _figures(run, config)


def _figures(run: SimulatedRun, config: RunConfig) -> dict[str, Any]:
    """Rates between the third step and the last that is timed."""
    tail = TAIL if config.group.max_staleness else 0
    last = len(run.published) - tail
    start, end = run.published[WARMUP - 1], run.published[last - 1]
    seconds = end - start
    counted = {row["id"] for row in run.rollouts if row["reward"] is not None}
    timed = range(WARMUP, last)
    trained = sum(
        member in counted
        for group in run.groups
        if group["state"] == "committed" and group["step"] in timed
        for member in json.loads(group["members"])
    )
    done = [row for row in run.rollouts if start <= row["finished"] <= end]
    lasted = [row["seconds"] for row in done if row["reward"] is not None]
    lost = sum(row["seconds"] for row in done if row["reward"] is None)
    states = Counter(group["state"] for group in run.groups)
    numbers = sorted(int(group["id"][1:]) for group in run.groups)
    return {
        "trajectories_per_s": round(trained / seconds, 3),
        "slot_use": round(_slot_use(run, last), 4),
        "episode_s": round(statistics.fmean(lasted), 3),
        "lost_share": round(lost / (lost + sum(lasted)), 4),
        "groups_lost": len(numbers) - len(set(numbers)) + numbers[-1] + 1 - len(numbers),
        "states": dict(states),
        "outcomes": dict(Counter(row["stop_reason"] for row in done)),
        "loop_blocked": round(run.steps[-1]["loop_blocked"], 4),
        "loop_lag_p99": round(run.steps[-1]["loop_lag_p99"], 4),
        "gradient_s": round(statistics.median(s["gradient_seconds"] for s in run.steps), 3),
        "staleness": run.steps[-1]["staleness"],
    }


def _slot_use(run: SimulatedRun, last: int) -> float:
    """Mean over the timed steps up to `last`, each weighted by its length."""
    lengths = [b - a for a, b in itertools.pairwise(run.published[WARMUP - 1 : last])]
    shares = [step["slot_use"] for step in run.steps[WARMUP:last]]
    return sum(n * s for n, s in zip(lengths, shares, strict=True)) / sum(lengths)


def _crowd(steps: int) -> dict[str, Any]:
    """2,000 rollouts at once, each slow enough that the learner keeps up with all of them."""
    more = {
        "rollout.in_flight": "2000",
        "group.per_step": "250",
        "scoring.workers": "64",
        "scoring.queue": "512",
    }
    world = World(turn_tokens=4, step=Latency(spec="lognormal:4,1.0", seed=1))
    found = _measure("asynchronous", 8, world, **more)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {**found, "memory_gib": round(peak, 3), "rollouts": 2000}


def _failures(steps: int) -> dict[str, Any]:
    """The mix of failures to plan for; a hanging tool costs its limit."""
    return _measure("asynchronous", steps, World(**FAILURES), **{"rollout.tool_seconds": "10"})


INNER: dict[str, Callable[[int], dict[str, Any]]] = {
    **{mode: partial(_measure, mode) for mode in MODES},
    "failures": _failures,
    "crowd": _crowd,
}


def _inner(name: str, steps: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--inner", name, "--steps", str(steps)]
    return _last(_run(command), "INNER")


def _tunix(python: str, steps: int) -> dict[str, Any]:
    """Tunix on its on-policy default, by its own measure of the same things."""
    command = [python, str(PEER), "--steps", str(steps), "--warmup-steps", str(WARMUP)]
    command += ["--batch-size", str(GROUPS), "--group-size", str(GROUP)]
    found = _last(_run([*command, "--max-concurrency", str(SLOTS)]), "RESULT")
    return {
        "trajectories_per_s": found["traj_per_s"],
        "slot_use": found["slot_util"],
        "episode_s": found["episode_s_mean"],
        "loop_blocked": found["loop_blocked_frac"],
        "trainer_busy": found["trainer_busy"],
        "stalled": found["stalled"],
        "version": found["tunix"],
    }


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _last(output: str, word: str) -> dict[str, Any]:
    lines = [line for line in output.splitlines() if line.startswith(f"{word} ")]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(f"{word} "))
    return found


def _peer_environment() -> Path:
    """The Python of `.bench/tunix`, made when it is missing."""
    folder = ROOT / ".bench" / "tunix"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        wanted = ["google-tunix==0.1.7", "jax==0.10.2"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True)
    return python


if __name__ == "__main__":
    main()
