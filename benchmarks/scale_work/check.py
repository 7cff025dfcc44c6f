"""The model beside the real runs of `scale.py`: same slots, same workers, measured parameters."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchgym.trainer.scale import (
    Duration,
    Groups,
    Learner,
    Sampler,
    ScaleParameters,
    ScaleReport,
    Scoring,
    simulate,
)

from .world import GROUP, SOLVED, STALENESS, TURNS, UPDATE

LATENCY = "lognormal:5,0.4"
"""Seconds of a turn of the policy that sleeps, in the real runs."""
GOAL = 0.1
"""Relative error that the model may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One real run, and what the model says of it."""

    slots: int
    rollouts: int
    real: float
    """Rollouts a second."""
    error: float
    """Standard error of `real`, from its five parts."""
    model: float
    report: ScaleReport

    @property
    def off(self) -> float:
        """What the model says, relative to the real rate, less 1."""
        return self.model / self.real - 1


def base(measured: Mapping[str, Any]) -> ScaleParameters:
    """What was measured, the rest as it is by default."""
    return ScaleParameters.from_json(json.dumps(measured["parameters"]))


def parameters(measured: Mapping[str, Any], run: Mapping[str, Any]) -> ScaleParameters:
    """A real run as the model sees it: nothing is taken from the run but its settings."""
    known = base(measured)
    return replace(
        known,
        slots=run["slots"],
        workload=replace(known.workload, turns=TURNS, solved=SOLVED),
        sampler=Sampler(accelerators=0, latency=Duration(LATENCY)),
        hosts=replace(known.hosts, count=1),
        scoring=Scoring(workers=run["workers"]),
        groups=Groups(
            size=GROUP, per_step=run["per_step"], max_staleness=STALENESS, asynchronous=True
        ),
        learner=Learner(seconds=UPDATE),
        orchestrator=replace(known.orchestrator, on_host=True),
    )


def compare(measured: Mapping[str, Any]) -> list[Compared]:
    """The model's answer to every real run."""
    found = []
    for run in measured["runs"]:
        report = simulate(parameters(measured, run), rollouts=4000)
        spread = statistics.stdev(run["parts"]) / len(run["parts"]) ** 0.5
        found.append(
            Compared(
                slots=run["slots"],
                rollouts=run["rollouts"],
                real=run["rate"],
                error=spread,
                model=report.rollouts_per_second,
                report=report,
            )
        )
    return found


def mean_seconds(activity: Mapping[str, Any]) -> float:
    """Alone, the rollout process's part included."""
    return Duration(activity["seconds"]["spec"]).mean + float(activity["driver_seconds"])


def core_seconds(activity: Mapping[str, Any]) -> float:
    """Of all cores for one, the rollout process's part included."""
    seconds = Duration(activity["seconds"]["spec"]).mean
    return seconds * float(activity["cores"]) + float(activity["driver_seconds"])


def table(compared: Sequence[Compared]) -> str:
    """In Markdown."""
    lines = [
        "| in flight | rollouts | real, a second | model | model to real | its bottleneck "
        "| host cores used |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.slots} | {each.rollouts} | {each.real:.3f} ± {each.error:.3f} | {each.model:.3f} "
        f"| {each.off:+.1%} | {each.report.bottleneck} | {each.report.use['host cores']:.0%} |"
        for each in compared
    ]
    return "\n".join(lines)


def result(compared: Sequence[Compared]) -> dict[str, Any]:
    """For the last line."""
    return {
        **{f"model_vs_real_{each.slots}": round(1 + each.off, 3) for each in compared},
        "worst": round(max(abs(each.off) for each in compared), 3),
        "within_goal": all(abs(each.off) <= GOAL for each in compared),
    }
