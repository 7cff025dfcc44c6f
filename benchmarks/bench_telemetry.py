"""What telemetry costs: the simulated pipeline with no SDK, and with spans and metrics kept.

    python benchmarks/bench_telemetry.py [--steps 10] [--rounds 5]

Both sides run the same seeded world of `benchmarks/rollout.py` (32 slots, four turns a rollout, a
real tiny learner), each in a process of its own, one after the other in every round, which of them
first by turns. `off` has OpenTelemetry's API alone: every call of the instrumentation is made and
comes to nothing. `on` is what `[telemetry]` does by default (spans and metrics in files) plus a
Prometheus endpoint that is scraped every five seconds.

Printed are the ratio of trajectories a second, `on` over `off`, and, because the pipeline mostly
waits, what the processor says: `loop_cpu_added` is what the event loop's thread needs more for a
rollout, at the rate of `off`, as a share of one core; `own_threads_cpu` is the same of the threads
that write and collect. `us_per_turn` is what the calls of one turn and its share of a rollout cost
by themselves, in microseconds of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
from rollout import BASE, MODES, WARMUP

from patchgym.agent import SampleRequest, rollout_span, telemetry
from patchgym.trainer.config import load_config
from patchgym.trainer.simulation import ACT, World, simulate
from patchgym.trainer.telemetry import TelemetryConfig
from patchgym.trainer.telemetry.opening import open_telemetry

SCRAPE = 5.0
"""Seconds between two scrapes."""
TAIL = 3
"""Steps at the end that are not timed: no rollout is begun for steps past it."""
OWN = ("patchgym-spans", "patchgym-metrics", "patchgym-scrape")
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10, help="the first and last three not timed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inner", choices=("on", "off"), help=argparse.SUPPRESS)
    known = parser.parse_args()
    if known.inner:
        print("INNER", json.dumps(_measure(known.inner == "on", known.steps)))
        return
    found: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    for number in range(known.rounds):
        for side in ("off", "on") if number % 2 else ("on", "off"):
            found[side].append(_inner(side, known.steps))
            print(f"round {number + 1} {side:3} {json.dumps(found[side][-1])}", flush=True)
    print("RESULT", json.dumps(_summary(found)))


def _summary(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def median(side: str, key: str) -> float:
        return statistics.median(one[key] for one in found[side])

    pairs = list(zip(found["on"], found["off"], strict=True))
    ratios = [a["trajectories_per_s"] / b["trajectories_per_s"] for a, b in pairs]
    loops = [(a["loop_cpu_ms"] - b["loop_cpu_ms"]) for a, b in pairs]
    rate = median("off", "trajectories_per_s") / 1000
    own = median("on", "own_cpu_ms")
    return {
        "throughput_on_vs_off": round(statistics.median(ratios), 4),
        "loop_cpu_added": round(statistics.median(loops) * rate, 4),
        "own_threads_cpu": round(own * rate, 4),
        "loop_cpu_ms_a_rollout": {side: round(median(side, "loop_cpu_ms"), 2) for side in found},
        "spans_per_s": round(median("on", "spans_per_s"), 1),
        "bytes_per_span": round(median("on", "bytes_per_span")),
        "us_per_turn": {side: round(median(side, "us_per_turn"), 1) for side in found},
        "spread": {
            "throughput_on_vs_off": [round(min(ratios), 4), round(max(ratios), 4)],
            "loop_cpu_added": [round(min(loops) * rate, 4), round(max(loops) * rate, 4)],
        },
        "versions": {
            "patchgym": version("patchgym"),
            "opentelemetry": version("opentelemetry-sdk"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
    }


def _measure(on: bool, steps: int) -> dict[str, float]:
    """One training in the simulated world."""
    config = load_config(
        None, list({**BASE, **MODES["asynchronous"], "run.steps": str(steps)}.items())
    )
    with tempfile.TemporaryDirectory() as name, _telemetry(on, Path(name)):
        began, loop, own = time.monotonic(), time.thread_time(), _own_threads()
        run = anyio.run(simulate, config, World(), Path(name))
        wall, loop = time.monotonic() - began, time.thread_time() - loop
        own = _own_threads() - own
        time.sleep(1.0)  # the writer's last batch
        files = list(Path(name, "trace").glob("spans-*"))
        lines = sum(path.read_bytes().count(b"\n") for path in files)
        size = sum(path.stat().st_size for path in files)
        calls = _calls()
    start, end = run.published[WARMUP - 1], run.published[-TAIL - 1]
    done = [row for row in run.rollouts if start <= row["finished"] <= end]
    return {
        "trajectories_per_s": round(len(done) / (end - start), 3),
        "wall_s": round(wall, 2),
        "loop_cpu_ms": round(1000 * loop / len(run.rollouts), 3),
        "own_cpu_ms": round(1000 * own / len(run.rollouts), 3),
        "spans_per_s": round(lines / wall, 1),
        "bytes_per_span": round(size / lines, 1) if lines else 0.0,
        "us_per_turn": round(calls * 1e6, 2),
    }


@contextmanager
def _telemetry(on: bool, folder: Path) -> Iterator[None]:
    if not on:
        yield
        return
    config = TelemetryConfig(prometheus="127.0.0.1:0")
    with open_telemetry(config, folder, {}, lambda words: print(words, file=sys.stderr)) as opened:
        assert opened.prometheus is not None
        address = "http://{}:{}/metrics".format(*opened.prometheus)
        over = threading.Event()
        scraper = threading.Thread(target=_scrape, args=(address, over), name=OWN[2], daemon=True)
        scraper.start()
        yield
        over.set()
        scraper.join()


def _scrape(address: str, over: threading.Event) -> None:
    while not over.wait(SCRAPE):
        urllib.request.urlopen(address).read()


def _own_threads() -> float:
    """Processor seconds of telemetry's threads so far."""
    total = 0
    for thread in threading.enumerate():
        if thread.name in OWN:
            fields = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().split()
            total += int(fields[13]) + int(fields[14])
    return total / TICKS


def _calls(turns: int = 4_000) -> float:
    """Processor seconds of the instrumentation of a turn, and of a quarter of its rollout."""
    request = SampleRequest(rollout_id="r", tokens=(1, 2, 3), max_new_tokens=24)
    started = time.thread_time()
    for number in range(turns):
        if number % 4 == 0:
            rollout_span("task", "rollout", slot=1).end()
        with telemetry.turn(0, replayed=False):
            with telemetry.sampling(request, "model"):
                pass
            with telemetry.tool_call("act", (ACT,)):
                pass
    return (time.thread_time() - started) / turns


def _inner(side: str, steps: int) -> dict[str, float]:
    command: Sequence[str] = [sys.executable, __file__, "--inner", side, "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("INNER ")]
    found: dict[str, float] = json.loads(lines[-1].removeprefix("INNER "))
    return found


if __name__ == "__main__":
    main()
