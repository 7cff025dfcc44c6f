"""`benchmarks/scale.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from . import check, sweep

CLUSTERS = {
    "fixed": "One cluster, sized for {fixed:,} sandboxes, with more and more rollouts on it",
    "grown, one process": "The cluster grows with the sandboxes; one process runs all rollouts",
    "grown": "The same, with as many rollout processes as it takes",
}
WORDS = {
    "short": "two turns of 48 tokens at most, as in the quickstart",
    "long": "up to 12 turns with a tool call each, lognormal turns with a median of 150 tokens",
}


def text(
    measured: Mapping[str, Any],
    compared: Sequence[check.Compared],
    rows: Sequence[sweep.Row],
    speeds: Mapping[str, float],
) -> str:
    """The whole page; `speeds` are events a second of two loops."""
    return (
        "\n\n".join(
            [
                f"# A cluster on paper, {datetime.now(UTC):%Y-%m-%d}",
                _head(measured),
                _checked(measured, compared),
                _measured(measured),
                _sweep(rows, speeds),
            ]
        )
        + "\n"
    )


def _head(measured: Mapping[str, Any]) -> str:
    names = ", ".join(f"{name} {number}" for name, number in measured["versions"].items())
    cores = measured["parameters"]["hosts"]["cores"]
    when = "; ".join(
        f"{part} on {each['date']}, load {each['load'][0]:g} before and {each['load'][1]:g} after"
        for part, each in measured["measured"].items()
    )
    return (
        f"Command: `python benchmarks/scale.py --measure --write`, {cores:g} cores, {names}. "
        f"Measured: {when}. What the model is and is not: [docs/scale.md](../docs/scale.md)."
    )


def _checked(measured: Mapping[str, Any], compared: Sequence[check.Compared]) -> str:
    worst = max(abs(each.off) for each in compared)
    verdict = "met" if worst <= check.GOAL else "missed"
    return (
        "## The model beside real runs\n\n"
        "The whole pipeline on one machine: real Docker pools, real test runs and verdicts, a "
        f"policy that answers after `{check.LATENCY}` seconds. The model is given what was "
        "measured between these runs, and their settings; nothing comes from the runs.\n\n"
        f"{check.table(compared)}\n\n"
        f"Goal: within {check.GOAL:.0%}; the largest difference is {worst:.1%}: {verdict}. ± is "
        "the standard error from five parts of a run."
    )


def _measured(measured: Mapping[str, Any]) -> str:
    full, alone = measured["hosts"]["full"], measured["hosts"]["alone"]
    given = measured["parameters"]
    lines = [
        "| | seconds alone, mean | runs | core seconds when full |",
        "|---|---|---|---|",
    ]
    activities = {"recycle": given["hosts"]["recycle"], **given["workload"]}
    for name, each in activities.items():
        values = alone.get(name, alone["call"])
        seconds = check.mean_seconds(each)
        lines.append(f"| {name} | {seconds:.3f} | {len(values)} | {check.core_seconds(each):.3f} |")
    recycling = ", ".join(
        f"{rate['a_second']:.2f} with {rate['side_by_side']} slots"
        for name, rate in full.items()
        if name.startswith("recycles")
    )
    steps = ", ".join(f"{turns:g}: {1e3 * s:.1f}" for turns, s in given["sampler"]["steps"])
    learner, driver = given["learner"], given["orchestrator"]
    return (
        "## Measured here\n\n"
        + "\n".join(lines)
        + f"\n\n- sandboxes recycled a second: {recycling}\n"
        f"- a decoding step of SmolLM2-135M by turns at once, ms: {steps}; context read in: "
        f"{given['sampler']['prefill_rate']:.0f} tokens/s\n"
        f"- an update: {learner['seconds']:.2f} s and {1e3 * learner['token_seconds']:.2f} ms for "
        "each token of a trajectory\n"
        f"- the process that runs rollouts: {1e3 * driver['rollout_seconds']:.1f} ms for a "
        f"rollout, {1e3 * driver['turn_seconds']:.1f} ms for a turn, tools aside"
    )


def _sweep(rows: Sequence[sweep.Row], speeds: Mapping[str, float]) -> str:
    example = sweep.EXAMPLE
    parts = [
        "## 64 to 20,000 sandboxes\n\n"
        "Examples, not anybody's machines or prices (`EXAMPLE` in `scale_work/sweep.py`): an "
        f"accelerator {example['speed']:g} times as fast as this machine, "
        f"{example['turns']:g} turns at once on it, {sweep.SLOTS_EACH} rollouts in flight for each "
        f"that samples; hosts of {example['host_cores']:g} cores; "
        f"{example['accelerator_hour']:g} an hour for an accelerator and "
        f"{example['host_hour']:g} for a host. Hosts, reward workers and the learner's "
        "accelerators are as many as are used to three quarters when nothing else is short. An "
        "update takes as many rollouts as are in flight; staleness is at most 2, asynchronous."
    ]
    for workload, words in WORDS.items():
        parts.append(f"### {workload}: {words}")
        for cluster in sweep.CLUSTERS[workload]:
            title = CLUSTERS[cluster]
            chosen = [r for r in rows if r.workload == workload and r.cluster == cluster]
            parts.append(f"{title.format(fixed=sweep.FIXED_FOR)}:\n\n{sweep.table(chosen)}")
    slowest = max(row.seconds for row in rows)
    parts.append(
        f"The slowest of these {len(rows)} simulations took {slowest:.0f} s. `simpy` does "
        f"{speeds['simpy']:,} events a second of processes that only wait, a bare loop over a heap "
        f"{speeds['heap']:,}, {speeds['heap_vs_simpy']:g} times as many (`scale_work/loops.py`)."
    )
    return "\n\n".join(parts)
