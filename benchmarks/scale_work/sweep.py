"""64 to 20,000 sandboxes: where the bottleneck moves, hosts for each accelerator, what it costs.

What hosts take, and what the rollout process takes, is measured. That an accelerator is so many
times as fast as this machine, that a host has so many cores, and every price, is an example.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchgym.trainer.scale import (
    Duration,
    Groups,
    Prices,
    ScaleParameters,
    ScaleReport,
    simulate,
    sized,
)

from . import check

SIZES = (64, 256, 1024, 4096, 20_000)
FIXED_FOR = 1024
"""Sandboxes that the cluster which does not grow is sized for."""
SLOTS_EACH = 128
"""Rollouts in flight for each sampler's accelerator."""
EXAMPLE = {
    "speed": 100.0,
    "turns": 128,
    "host_cores": 32.0,
    "publish_seconds": 0.1,
    "accelerator_hour": 2.0,
    "host_hour": 1.0,
}
"""Examples, for you to replace: an accelerator, times as fast as this machine and turns at once; a
host's cores; seconds until new weights are out; prices of an hour, in any currency."""
WORKLOADS: Mapping[str, Mapping[str, Any]] = {
    "short": {
        "turns": 2,
        "solved": 0.3,
        "turn_tokens": Duration("const:48"),
        "opening_tokens": 220.0,
        "observation_tokens": 40.0,
        "lease": "call",
    },
    "long": {
        "turns": 12,
        "solved": 0.1,
        "turn_tokens": Duration("lognormal:150,0.8"),
        "opening_tokens": 3000.0,
        "observation_tokens": 400.0,
        "lease": "opening",
    },
}
"""`short` is the quickstart's: two turns at most. `long` is an agent with tools, an example: up to
12 turns, each with a tool call that takes what a test run here takes."""


CLUSTERS = {"short": ("fixed", "grown, one process", "grown"), "long": ("fixed", "grown")}
"""By workload; see `Row.cluster`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cluster."""

    workload: str
    cluster: str
    """`fixed`, `grown, one process`, or `grown`."""
    parameters: ScaleParameters
    report: ScaleReport
    seconds: float
    """That the model took."""


def base(measured: Mapping[str, Any], workload: str, slots: int) -> ScaleParameters:
    """`slots` rollouts in flight on example accelerators; hosts and workers are not sized yet."""
    known = check.base(measured)
    size = 8
    return replace(
        known,
        slots=slots,
        workload=replace(known.workload, **WORKLOADS[workload]),
        sampler=replace(
            known.sampler,
            accelerators=max(slots // SLOTS_EACH, 1),
            turns=int(EXAMPLE["turns"]),
            speed=EXAMPLE["speed"],
        ),
        hosts=replace(known.hosts, cores=EXAMPLE["host_cores"]),
        groups=Groups(
            size=size, per_step=max(slots // size, 1), max_staleness=2, asynchronous=True
        ),
        learner=replace(
            known.learner, speed=EXAMPLE["speed"], publish_seconds=EXAMPLE["publish_seconds"]
        ),
        prices=Prices(accelerator_hour=EXAMPLE["accelerator_hour"], host_hour=EXAMPLE["host_hour"]),
    )


def processes(parameters: ScaleParameters, report: ScaleReport) -> ScaleParameters:
    """As many rollout processes as are used to three quarters at most."""
    own = parameters.orchestrator
    needed = report.use["orchestrator"] * own.processes / 0.75
    return replace(parameters, orchestrator=replace(own, processes=max(-int(-needed // 1), 1)))


def run(measured: Mapping[str, Any], largest: int) -> list[Row]:
    """All rows."""
    rows = []
    sizes = [size for size in SIZES if size <= largest]
    for workload, clusters in CLUSTERS.items():
        fixed = sized(base(measured, workload, FIXED_FOR))
        fixed = processes(fixed, _plenty(fixed))
        for slots in sizes:
            grown = sized(base(measured, workload, slots))
            for cluster in clusters:
                given = grown
                if cluster == "fixed":
                    given = _with_slots(fixed, slots)
                if cluster == "grown":
                    given = processes(grown, _plenty(grown))
                rows.append(_row(workload, cluster, given))
    return rows


def _plenty(parameters: ScaleParameters) -> ScaleReport:
    """With a process for every 16 rollouts: what they are used for shows how many are needed."""
    slots = min(parameters.slots, FIXED_FOR)
    small = sized(replace(
        parameters, slots=slots,
        sampler=replace(parameters.sampler, accelerators=max(slots // SLOTS_EACH, 1)),
        groups=replace(parameters.groups, per_step=max(slots // 8, 1)),
    ))  # fmt: skip
    own = replace(parameters.orchestrator, processes=max(slots // 16, 1))
    report = simulate(replace(small, orchestrator=own))
    share = report.use["orchestrator"] * own.processes * parameters.slots / slots
    return replace(report, use={"orchestrator": share / parameters.orchestrator.processes})


def _with_slots(parameters: ScaleParameters, slots: int) -> ScaleParameters:
    """More rollouts on the same machines, their sandboxes and batches with them."""
    return replace(
        parameters,
        slots=slots,
        groups=replace(parameters.groups, per_step=max(slots // parameters.groups.size, 1)),
    )


def _row(workload: str, cluster: str, parameters: ScaleParameters) -> Row:
    began = time.perf_counter()
    report = simulate(parameters)
    took = time.perf_counter() - began
    print(
        f"{workload}, {cluster}, {parameters.slots}: {report.bottleneck}, {took:.1f} s", flush=True
    )
    return Row(
        workload=workload, cluster=cluster, parameters=parameters, report=report, seconds=took
    )


HEAD = (
    "| sandboxes | samplers | learner's | hosts | rollout processes | rollouts/s | trained/s "
    "| bottleneck | waits for a sandbox, p50, p95, p99, s | hosts for each accelerator "
    "| 1,000 trajectories |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def tables(rows: Sequence[Row]) -> str:
    """All of them in Markdown, by workload and cluster."""
    kinds = dict.fromkeys((row.workload, row.cluster) for row in rows)
    return "\n\n".join(
        f"{workload}, {cluster}\n\n"
        + table([row for row in rows if (row.workload, row.cluster) == (workload, cluster)])
        for workload, cluster in kinds
    )


def table(rows: Sequence[Row]) -> str:
    """One of them."""
    return "\n".join([HEAD, *(_line(row) for row in rows)])


def _line(row: Row) -> str:
    given, report = row.parameters, row.report
    wait = report.waits["a sandbox"]
    return (
        f"| {given.slots:,} | {given.sampler.accelerators} | {given.learner.accelerators} "
        f"| {given.hosts.count} | {given.orchestrator.processes} "
        f"| {report.rollouts_per_second:.3g} | {report.trained_per_second:.3g} "
        f"| {report.bottleneck}, {_used(report)} "
        f"| {wait.p50:.2g}, {wait.p95:.2g}, {wait.p99:.2g} "
        f"| {report.hosts_per_accelerator:.2g} | {report.cost_per_thousand:.3g} |"
    )


def _used(report: ScaleReport) -> str:
    names = {"rollout slots": "slots", "staleness bound": "slots"}
    return f"{report.use[names.get(report.bottleneck, report.bottleneck)]:.0%}"


def result(rows: Sequence[Row]) -> dict[str, Any]:
    """For the last line."""
    found: dict[str, Any] = {}
    for row in rows:
        name = f"{row.workload}_{row.cluster.replace(', ', '_').replace(' ', '_')}"
        found.setdefault(f"bottleneck_{name}", {})[row.parameters.slots] = row.report.bottleneck
        if row.cluster == "grown":
            ratio = round(row.report.hosts_per_accelerator, 2)
            found.setdefault(f"hosts_per_accelerator_{row.workload}", {})[row.parameters.slots] = (
                ratio
            )
    found["slowest_row_seconds"] = round(max((row.seconds for row in rows), default=0.0), 1)
    return found
