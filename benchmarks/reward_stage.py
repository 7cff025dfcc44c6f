"""What slow scoring costs the trainer, with reward workers and with scoring inside the rollout.

A part of `benchmarks/rewards.py`. The simulated world of `trainer/simulation.py`: 32 slots,
rollouts of about two seconds, a learner that takes three seconds for an update of eight groups of
four, and a reward that takes 0.1 s, then so many times as long. Scoring inside the rollout keeps
the rollout's slot until the reward is there; reward workers (16) take it from a queue. The
trainer's wait is its own account (rule 21): the share of its wall time, after the first three
steps, and the reasons that it gives.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from patchgym.trainer.config import load_config
from patchgym.trainer.simulation import Latency, SimulatedRun, World, simulate

WORKERS = 16
REWARD = 0.1
FIRST = 2
"""The step after which time counts: nothing is there to train on when a run begins."""
SETTINGS: Mapping[str, str] = {
    "group.size": "4",
    "group.per_step": "8",
    "group.max_staleness": "2",
    "group.asynchronous": "true",
    "rollout.in_flight": "32",
    "rollout.max_turns": "4",
    "rollout.max_new_tokens": "24",
    "rollout.context_tokens": "256",
    "scoring.workers": str(WORKERS),
    "scoring.queue": "256",
    "learner.row_tokens": "[192]",
}


def measure(steps: int, factor: float, *, inside: bool) -> dict[str, Any]:
    """The trainer's wait in one run, as shares of its time."""
    config = load_config(None, [*SETTINGS.items(), ("run.steps", str(steps))])
    world = World(
        step=Latency(spec="lognormal:0.3,0.5", seed=1),
        reward=Latency(spec=f"const:{REWARD * factor}"),
        update=Latency(spec="const:3"),
        scored_inside=inside,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = anyio.run(simulate, config, world, Path(folder))
    return summary(run)


def summary(run: SimulatedRun) -> dict[str, Any]:
    """Share of time the trainer waited, by reason, and the rate of trained rollouts."""
    waits = {why: round(share, 4) for why, share in run.waits(FIRST).items() if share > 0.0005}
    seconds = run.published[-1] - run.published[FIRST]
    return {
        "wait": round(sum(run.waits(FIRST).values()), 4),
        "reasons": waits,
        "steps_per_minute": round(60 * (len(run.published) - 1 - FIRST) / seconds, 2),
    }
