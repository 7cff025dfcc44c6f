"""A training at a high rate for minutes or hours: does anything grow that should not?

    python benchmarks/soak.py [--minutes 60] [--json FILE]

A coin run (the tests' tiny model, a reward that is drawn) trains without a pause. Every few seconds
its process is looked at from outside: resident memory, file descriptors, threads, the ledger's
write-ahead log, containers. The run's folder grows with every rollout, by what it keeps, so its
growth is told a rollout. Last line: RESULT and one JSON object.

What fills up (programs, caches, the allocator's arenas) grows fast and then ever slower; a leak
grows on. So the samples after the warm-up are split in halves, each half has a slope of its own
(the median of the slopes between all pairs, Theil and Sen), and the smaller one is the growth that
lasts: it fails past a limit an hour. What grows in leaps shows in neither slope: the rise between
the medians of the two halves has a limit, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from coin_runs import PATCHGYM, coin_run  # noqa: E402

EVERY = 5.0
WARM_UP = 0.2
"""Share of the time at the start that is left out: programs compile."""
LIMITS = {
    "rss_mib": 64.0,
    "descriptors": 5.0,
    "threads": 5.0,
    "log_mib": 16.0,
    "containers": 0.5,
}
"""Growth an hour that passes, if it lasts."""
RISES = {name: limit / 2 for name, limit in LIMITS.items()} | {"log_mib": LIMITS["log_mib"]}
"""Rise from one half to the other that passes."""


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs of samples: units an hour for times in seconds."""
    pairs = itertools.combinations(zip(times, values, strict=True), 2)
    slopes = [(after - before) / (late - early) for (early, before), (late, after) in pairs]
    return 3600 * statistics.median(slopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a series grew after the warm-up."""

    first: float
    """Units an hour in the first half."""
    second: float
    """Units an hour in the second half."""
    rise: float
    """Units between the medians of the halves."""

    @classmethod
    def of(cls, times: Sequence[float], values: Sequence[float]) -> Growth:
        """At least four samples, the warm-up left out."""
        half = len(times) // 2
        parts = (times[:half], values[:half]), (times[half:], values[half:])
        first, second = (slope(*part) for part in parts)
        medians = [statistics.median(part[1]) for part in parts]
        return cls(first=first, second=second, rise=medians[1] - medians[0])

    @property
    def lasting(self) -> float:
        """Units an hour that neither half is without."""
        return min(self.first, self.second)


def sample(pid: int, run: Path) -> dict[str, float]:
    """What the process has now."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    log = run / "run.sqlite-wal"
    names = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=patchgym.owner.pid={pid}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "rss_mib": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "log_mib": log.stat().st_size / (1 << 20) if log.exists() else 0.0,
        "containers": len(names.stdout.split()),
        "disk_mib": disk(run) / (1 << 20),
        "rollouts": count(run, "rollouts"),
        "steps": count(run, "steps"),
    }


def disk(folder: Path) -> int:
    """Bytes on disk below a folder; files may come and go meanwhile."""
    done = subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) * 1024 if done.stdout else 0


def count(run: Path, table: str) -> int:
    """Rows of a table of the ledger."""
    connection = sqlite3.connect(f"file:{run / 'run.sqlite'}?mode=ro", uri=True)
    try:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])
    finally:
        connection.close()


def soak(minutes: float, folder: Path) -> tuple[list[float], list[dict[str, float]]]:
    """Train for that long; times (seconds) and samples."""
    coin_run(ROOT, folder, {"run": {"steps": 10**9}, "checkpoint": {"every": 50}})
    run, log = folder / "runs" / "coins", folder / "log"
    times: list[float] = []
    samples: list[dict[str, float]] = []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [PATCHGYM, "train", "--config", "run.toml"], cwd=folder, stdout=output, stderr=output
        )
    try:
        while "] step 2/" not in log.read_text():
            time.sleep(0.5)
            if process.poll() is not None:
                raise SystemExit(log.read_text())
        start = time.monotonic()
        while (now := time.monotonic() - start) < 60 * minutes:
            times.append(now)
            samples.append(sample(process.pid, run))
            print(f"{now:7.0f} s  " + "  ".join(f"{k} {v:.1f}" for k, v in samples[-1].items()))
            time.sleep(EVERY)
            if process.poll() is not None:
                raise SystemExit(log.read_text()[-3000:])
        process.send_signal(signal.SIGTERM)
        if process.wait(120) != 130:
            raise SystemExit(log.read_text()[-3000:])
    finally:
        process.kill()
        process.wait()
    check = subprocess.run([PATCHGYM, "runs", "check", "coins"], cwd=folder, check=False)
    if check.returncode:
        raise SystemExit("the run's folder does not keep its promises")
    return times, samples


def report(times: Sequence[float], samples: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Growth by name, and what is not flat."""
    first = int(len(times) * WARM_UP)
    times, samples = times[first:], samples[first:]
    growth = {name: Growth.of(times, [each[name] for each in samples]) for name in LIMITS}
    rollouts = samples[-1]["rollouts"] - samples[0]["rollouts"]
    grown = samples[-1]["disk_mib"] - samples[0]["disk_mib"]
    return {
        "minutes": round((times[-1] - times[0]) / 60, 1),
        "steps": samples[-1]["steps"],
        "rollouts_per_second": round(rollouts / (times[-1] - times[0]), 1),
        "per_hour": {k: [round(g.first, 2), round(g.second, 2)] for k, g in growth.items()},
        "rise": {name: round(each.rise, 2) for name, each in growth.items()},
        "disk_kib_per_rollout": round(1024 * grown / max(1, rollouts), 2),
        "last": {name: round(value, 1) for name, value in samples[-1].items()},
        "not_flat": [
            name
            for name, each in growth.items()
            if each.lasting > LIMITS[name] or each.rise > RISES[name]
        ],
    }


def main() -> int:
    """Exit code 1 when something grows."""
    arguments = argparse.ArgumentParser(description="A training for long: what grows?")
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--json", type=Path, help="where the samples go")
    known = arguments.parse_args()
    if known.minutes < 1:
        arguments.error("--minutes must be at least 1: a line needs samples")
    with tempfile.TemporaryDirectory(prefix="patchgym-soak-") as folder:
        times, samples = soak(known.minutes, Path(folder))
    found = report(times, samples)
    if known.json is not None:
        known.json.write_text(json.dumps({"times": times, "samples": samples}))
    print("RESULT " + json.dumps(found))
    return 1 if found["not_flat"] else 0


if __name__ == "__main__":
    sys.exit(main())
