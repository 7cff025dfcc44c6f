"""The scale model beside the real pipeline in a simulated world, in virtual time.

Real on that side: rollouts, slots, reward workers, groups, the bounded queue, staleness, ledger.
Durations are given on both sides, so that only the rules can differ.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from patchgym.trainer.config import load_config
from patchgym.trainer.scale import (
    Activity,
    Duration,
    Groups,
    Hosts,
    Learner,
    Sampler,
    ScaleParameters,
    ScaleReport,
    Scoring,
    Workload,
)
from patchgym.trainer.scale import simulate as simulate_scale
from patchgym.trainer.simulation import Latency, World, simulate
from patchgym.trainer.virtual_time import run_virtually

SLOTS, SIZE, PER_STEP, WORKERS, TURNS = 16, 4, 2, 6, 3
FIRST, STEPS = 8, 48
SAMPLING, RESET, TOOL, REWARD = (
    "lognormal:1,0.5",
    "const:0.2",
    "lognormal:0.6,0.8",
    "const:0.6",
)
UPDATE, PUBLISH = 0.8, 0.2
MODES = {
    "on-policy": {"group.max_staleness": "0"},
    "one step behind": {"group.max_staleness": "1"},
    "asynchronous": {"group.max_staleness": "2", "group.asynchronous": "true"},
}


def real(
    mode: str, folder: Path, sandboxes: int, workers: int, update: float
) -> tuple[float, float]:
    """Trained rollouts a second, and the share of the learner's time that it waited."""
    given = {
        "run.steps": str(STEPS),
        "group.size": str(SIZE),
        "group.per_step": str(PER_STEP),
        "rollout.in_flight": str(SLOTS),
        "rollout.max_turns": str(TURNS),
        "rollout.context_tokens": "256",
        "rollout.seconds": "6000",
        "scoring.workers": str(workers),
        "learner.row_tokens": "[256]",
        **MODES[mode],
    }
    world = World(
        turns=TURNS,
        generation=Latency(spec=SAMPLING, seed=4),
        reset=Latency(spec=RESET),
        step=Latency(spec=TOOL, seed=1),
        reward=Latency(spec=REWARD, seed=3),
        update=Latency(spec=f"const:{update}"),
        publish=Latency(spec=f"const:{PUBLISH}"),
        sandboxes=sandboxes,
        learns=False,
    )
    run = run_virtually(simulate, load_config(None, list(given.items())), world, folder)
    rows = run.steps[FIRST:]
    seconds = rows[-1]["clock_seconds"] - rows[0]["clock_seconds"]
    trained = (len(rows) - 1) * PER_STEP * SIZE
    return trained / seconds, sum(run.waits(FIRST).values())


def model(mode: str, sandboxes: int, workers: int, update: float) -> ScaleReport:
    def activity(spec: str) -> Activity:
        return Activity(seconds=Duration(spec))

    known = MODES[mode]
    return simulate_scale(
        ScaleParameters(
            slots=SLOTS,
            workload=Workload(
                turns=TURNS,
                lease="opening",
                checkout=activity(RESET),
                call=activity(TOOL),
                score=activity(REWARD),
            ),
            sampler=Sampler(accelerators=0, latency=Duration(SAMPLING)),
            hosts=Hosts(cores=1e6, sandboxes=sandboxes),
            scoring=Scoring(workers=workers),
            groups=Groups(
                size=SIZE,
                per_step=PER_STEP,
                max_staleness=int(known["group.max_staleness"]),
                asynchronous="group.asynchronous" in known,
                drop_equal=False,
            ),
            learner=Learner(seconds=update, publish_seconds=PUBLISH),
        ),
        rollouts=2000,
    )


@pytest.mark.parametrize(
    ("mode", "sandboxes", "workers", "update"),
    [
        *((mode, SLOTS, WORKERS, UPDATE) for mode in MODES),
        ("asynchronous", 6, WORKERS, UPDATE),
        ("one step behind", SLOTS, 1, UPDATE),
        ("asynchronous", SLOTS, 1, UPDATE),
        ("one step behind", SLOTS, WORKERS, 5.0),
    ],
    ids=[*MODES, "few sandboxes", "one worker", "one worker, asynchronous", "slow learner"],
)
def test_the_model_keeps_the_pace_of_the_pipeline(
    mode: str, sandboxes: int, workers: int, update: float, tmp_path: Path
) -> None:
    pace, waited = real(mode, tmp_path, sandboxes, workers, update)
    report = model(mode, sandboxes, workers, update)
    assert report.trained_per_second == pytest.approx(pace, rel=0.08)
    assert report.use["learner"] == pytest.approx(1 - waited, abs=0.05)
