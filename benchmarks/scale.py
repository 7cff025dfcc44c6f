"""A cluster on paper, from what this machine can measure; and the model beside real runs here.

    python benchmarks/scale.py [--measure [hosts|accelerator]] [--write] [--length X]

`--measure` (a quarter of an hour, on two cores) measures what the model is given: recycling,
checkouts, tool calls and verdicts of real Docker sandboxes, alone and side by side; what the
process that runs rollouts takes; SmolLM2-135M's decoding step by turns at once, and its update.
Between the slices of that, the whole pipeline runs for real with 8, 16 and 32 rollouts in flight:
real pools, real test runs, a policy that sleeps and answers (`scale_work/world.py`). The model then
says what each of these runs should have given, with nothing in it that came from them. All of it is
kept in `scale_work/measured.json`.

Without `--measure` that file is read. Either way the model then looks at 64 to 20,000 sandboxes,
which takes minutes: two workloads, on accelerators and at prices that are examples (`EXAMPLE`) and
not anybody's. `--write` writes `scale.md`. `--length` stretches all that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from scale_work import accelerator, check, driver, hosts, loops, page, sweep
from scale_work.world import Answers, RealCase, SleepingPolicy, open_world, tasks, train

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "scale_work" / "measured.json"
PARTS = ("hosts", "accelerator")
SLICE = 8.0
"""Seconds of each part of a slice of measurements."""
CASES = ((8, 2, 300.0), (16, 4, 200.0), (32, 8, 200.0))
"""Rollouts in flight, reward workers, seconds, of the real runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--measure", nargs="*", choices=PARTS, help="all, or only one part, beside what is kept"
    )
    parser.add_argument("--write", action="store_true", help="write scale.md")
    parser.add_argument("--length", type=float, default=1.0, help="of all that is measured")
    parser.add_argument("--largest", type=int, default=20_000, help="sandboxes of the last row")
    known = parser.parse_args()
    if known.measure is not None:
        for part in known.measure or PARTS:
            _measure(part, known.length)
    measured = json.loads(MEASURED.read_text())
    began = time.perf_counter()
    compared = check.compare(measured)
    print(check.table(compared), flush=True)
    speeds = loops.measure()
    found = sweep.run(measured, known.largest)
    print(sweep.tables(found))
    if known.write:
        (HERE / "scale.md").write_text(page.text(measured, compared, found, speeds))
    result = {
        **check.result(compared),
        **sweep.result(found),
        "events_a_second": speeds,
        "model_seconds": round(time.perf_counter() - began, 1),
        "measured": measured["measured"],
        "versions": measured["versions"],
    }
    print("RESULT", json.dumps(result))


def _measure(part: str, length: float) -> None:
    """Measure `hosts` (with the real runs between its slices) or the `accelerator`, and keep it
    beside what was measured before."""
    before = os.getloadavg()[0]
    found = anyio.run(_hosts_and_runs, length) if part == "hosts" else accelerator.measure()
    kept = json.loads(MEASURED.read_text()) if MEASURED.exists() else {"parameters": {}}
    given = kept["parameters"] | found.pop("parameters")
    loads = [round(each, 1) for each in (before, os.getloadavg()[0])]
    when = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "load": loads}
    kept |= {
        **found,
        "parameters": given,
        "measured": {**kept.get("measured", {}), part: when},
        "versions": {
            "python": platform.python_version(),
            "simpy": version("simpy"),
            "jax": version("jax"),
        },
    }
    MEASURED.write_text(json.dumps(kept, indent=1) + "\n")


async def _hosts_and_runs(length: float) -> dict[str, Any]:
    orchestrator = await driver.measure(SLICE * length)
    times, runs = hosts.HostTimes(), []
    for slots, workers, seconds in CASES:
        await _slice(times, length)
        runs.append(await _run(slots, workers, seconds * length))
    await _slice(times, length)
    work = {name: asdict(each) for name, each in hosts.activities(times).items()}
    given = {
        "hosts": {"cores": hosts.CORES, "recycle": work.pop("recycle")},
        "workload": work,
        "orchestrator": orchestrator,
    }
    return {"parameters": given, "hosts": hosts.to_json(times), "runs": runs}


async def _slice(times: hosts.HostTimes, length: float) -> None:
    async with open_world(hosts.FULL, hosts.FULL) as domain:
        await hosts.measure(domain, times, SLICE * length)
    print(f"measured a slice, load {os.getloadavg()[0]:.1f}", flush=True)


async def _run(slots: int, workers: int, seconds: float) -> dict[str, Any]:
    """One real run, from when as many rollouts have come back as are in flight."""
    case = RealCase(slots=slots, workers=workers, seconds=seconds)
    policy = SleepingPolicy(Answers(tasks()), check.LATENCY)
    async with open_world(slots, workers) as domain:
        run = await train(case, domain, policy)
    warmup = run.turned_over(slots)
    print(f"{slots} in flight: {run.rate(warmup):.3f} rollouts/s", flush=True)
    return {
        "slots": slots,
        "workers": workers,
        "per_step": case.per_step,
        "seconds": round(run.seconds - warmup, 1),
        "rollouts": sum(when > warmup for when, _ in run.rollouts),
        "rate": round(run.rate(warmup), 4),
        "parts": [round(rate, 4) for rate in run.rates(warmup)],
    }


if __name__ == "__main__":
    main()
