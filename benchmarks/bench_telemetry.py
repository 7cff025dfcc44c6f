"""What telemetry costs: processor time of its calls, beside that of the quickstart's real turns.

    python benchmarks/bench_telemetry.py [--blocks 40] [--steps 4]

Calls. Two processes make the calls of `telemetry_calls.py` and nothing else, a block in one, then a
block in the other: `off` has OpenTelemetry's API alone, `on` is what `[telemetry]` does by default,
with a Prometheus endpoint. Measured is the processor time of the whole process, the thread that
writes spans included, until all spans of the block are on file. What is told of is the mean of
`on` minus `off` over pairs of neighbouring blocks, with a bootstrapped 95% interval: other work on
the machine slows both. `background` is the processor time of `on` while nothing is called, with
a line of metrics every ten seconds and a scrape every five, as a share of one core.

Real turns. `examples/quickstart.toml` is trained for some steps with the telemetry of `on`, in
a process of its own. From the end of its first step (what is compiled is compiled by then) to the
end of its last turn, that process's processor time and the wall time are divided by the turns that
ended. Its sandboxes are other processes, and not in it.

Shares. A real turn's calls are as many spans as the real run wrote a turn, each at what a span (its
metrics included) of the `quickstart` block costs. `share_of_processor_time` is their part of a real
turn's processor time. `share_of_wall` is their part of the wall time between two turns of the whole
run, as if every call held up everything. Both have the background in them. The intervals are those
of the calls; a real turn is from one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opentelemetry import trace
from telemetry_calls import KINDS

from patchgym.trainer.telemetry import SpanRecord, TelemetryConfig, read_spans, span_files
from patchgym.trainer.telemetry.opening import open_telemetry

ROOT = Path(__file__).resolve().parent.parent
BLOCK = 100
"""Rollouts of a block."""
SCRAPE, IDLE = 5.0, 30.0
"""Seconds between two scrapes; seconds without a call."""
BOUND = 0.01
"""What the shares have to stay under."""
SMALL = {"evaluation.samples": "0", "telemetry.prometheus": "127.0.0.1:0"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=40, help="pairs of blocks of each kind")
    parser.add_argument("--steps", type=int, default=4, help="of the quickstart, at least three")
    parser.add_argument("--per-step", type=int, default=4, help="groups of a step of it")
    parser.add_argument("--inner", choices=("on", "off", "real"), help=argparse.SUPPRESS)
    known = parser.parse_args()
    if known.inner == "real":
        print("INNER", json.dumps(_real(known.steps, known.per_step)), flush=True)
    elif known.inner:
        _answer(known.inner == "on")
    else:
        print("RESULT", json.dumps(_measure(known.blocks, known.steps, known.per_step)))


def _measure(blocks: int, steps: int, per_step: int) -> dict[str, Any]:
    with _process("off") as off, _process("on") as on:
        pairs = {kind: _pairs(kind, on, off, blocks) for kind in KINDS}
        background = on("idle")["cpu_s"] / IDLE
    calls = {kind: _told(kind, found) for kind, found in pairs.items()}
    with _process("real", "--steps", str(steps), "--per-step", str(per_step)) as real:
        turn = real("")
    print(f"a real turn: {json.dumps(turn)}", flush=True)
    return _summary(calls, background, turn)


def _pairs(
    kind: str, on: Callable[[str], Any], off: Callable[[str], Any], blocks: int
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Measured blocks of `on` and `off`, which of them is first by turns."""
    for ask in (on, off):  # what is made on the first call
        ask(kind)
    found = []
    for number in range(blocks):
        first, second = (on, off) if number % 2 else (off, on)
        one, other = first(kind), second(kind)
        found.append((one, other) if number % 2 else (other, one))
    return found


def _told(kind: str, pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> dict[str, Any]:
    """Milliseconds of the processor that a turn costs, and microseconds a span."""
    added = [1000 * (on["cpu_s"] / on["turns"] - off["cpu_s"] / off["turns"]) for on, off in pairs]
    spans = sum(on["spans"] for on, _ in pairs) / sum(on["turns"] for on, _ in pairs)
    found = {
        "added_ms": statistics.fmean(added),
        "interval": _interval(added),
        "off_ms": 1000 * statistics.fmean(off["cpu_s"] / off["turns"] for _, off in pairs),
        "spans": spans,
        "bytes_a_span": sum(on["bytes"] for on, _ in pairs) / sum(on["spans"] for on, _ in pairs),
    }
    print(f"calls of {kind}, a turn: {json.dumps(found)}", flush=True)
    return found


def _interval(values: Sequence[float], draws: int = 4000) -> list[float]:
    """95% of the means of as many values, drawn anew."""
    chance = random.Random(0)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(draws))
    return [means[draws * 25 // 1000], means[draws * 975 // 1000]]


def _summary(
    calls: Mapping[str, Mapping[str, Any]], background: float, turn: Mapping[str, float]
) -> dict[str, Any]:
    whole = calls["quickstart"]
    spans = turn["spans"] / whole["spans"]
    idle = background * turn["wall_ms"]

    def share(of: str, added: float) -> float:
        return round((added * spans + idle) / turn[of], 6)

    shares = {"share_of_processor_time": "processor_ms", "share_of_wall": "wall_ms"}
    result: dict[str, Any] = {name: share(of, whole["added_ms"]) for name, of in shares.items()}
    result |= {
        "below_1_percent": all(share(of, whole["interval"][1]) < BOUND for of in shares.values()),
        "share_of_processor_time_api_alone": round(
            whole["off_ms"] * spans / turn["processor_ms"], 6
        ),
        "added_ms_a_turn": {
            "agent": round(calls["turn"]["added_ms"], 3),
            "real": round(whole["added_ms"] * spans, 3),
        },
        "added_us_a_span": round(1000 * whole["added_ms"] / whole["spans"], 1),
        "api_alone_ms_a_turn": {
            "agent": round(calls["turn"]["off_ms"], 4),
            "real": round(whole["off_ms"] * spans, 4),
        },
        "background": round(background, 5),
        "bytes_a_span": round(whole["bytes_a_span"]),
        "real_turn": turn,
    }
    ends = {name: [share(of, end) for end in whole["interval"]] for name, of in shares.items()}
    agent = [round(end, 3) for end in calls["turn"]["interval"]]
    return {
        **result,
        "spread": {**ends, "added_ms_a_turn": {"agent": agent}},
        "load": os.getloadavg()[0],
        "versions": {
            "patchgym": version("patchgym"),
            "opentelemetry": version("opentelemetry-sdk"),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
        },
    }


def _answer(on: bool) -> None:
    """Make the blocks that the standard input asks for, a line each, and tell what they took."""
    with tempfile.TemporaryDirectory() as name, _telemetry(on, Path(name)):
        for line in sys.stdin:
            print("INNER", json.dumps(_block(line.strip(), Path(name))), flush=True)


def _block(kind: str, folder: Path) -> dict[str, float]:
    before, started = _kept(folder), time.process_time()
    turns = 0
    if kind == "idle":
        time.sleep(IDLE)
    else:
        turns = sum(KINDS[kind]() for _ in range(BLOCK))
        flush = getattr(trace.get_tracer_provider(), "force_flush", None)  # of the SDK's
        if flush is not None:
            flush()
    cpu = time.process_time() - started
    spans, size = (now - then for now, then in zip(_kept(folder), before, strict=True))
    return {"cpu_s": cpu, "turns": turns, "spans": spans, "bytes": size}


def _kept(folder: Path) -> tuple[int, int]:
    """Spans on file, and their bytes."""
    texts = [path.read_bytes() for path in span_files(folder / "trace")]
    return sum(text.count(b"\n") for text in texts), sum(map(len, texts))


@contextmanager
def _telemetry(on: bool, folder: Path) -> Iterator[None]:
    if not on:
        yield
        return
    config, over = TelemetryConfig(prometheus="127.0.0.1:0"), threading.Event()
    with open_telemetry(config, folder, {}, lambda words: print(words, file=sys.stderr)) as opened:
        assert opened.prometheus is not None
        address = "http://{}:{}/metrics".format(*opened.prometheus)
        scraper = threading.Thread(target=_scrape, args=(address, over), daemon=True)
        scraper.start()
        yield
        over.set()
        scraper.join()


def _scrape(address: str, over: threading.Event) -> None:
    while not over.wait(SCRAPE):
        urllib.request.urlopen(address).read()


def _real(steps: int, per_step: int) -> dict[str, float]:
    """A training of the quickstart: what one of its turns takes."""
    from patchgym.trainer.config import load_config
    from patchgym.trainer.run_folder import create_run
    from patchgym.trainer.session import train

    with tempfile.TemporaryDirectory() as name:
        small = SMALL | {"run.folder": name, "run.steps": str(steps)}
        small["group.per_step"] = str(per_step)
        config = load_config(ROOT / "examples" / "quickstart.toml", list(small.items()))
        folder, meter = create_run(config), _Meter()
        meter.start()
        train(config, folder, resume=False, as_json=True)
        spans = list(read_spans(folder.path / "trace"))
    return _a_turn(spans, meter.between)


def _a_turn(spans: Sequence[SpanRecord], used: Callable[[float, float], float]) -> dict[str, float]:
    """What a turn takes from the end of the first step to the end of the last turn; `used` has the
    processor seconds between two moments."""
    start = min(span.end for span in spans if span.name == "step")
    turns = [span for span in spans if span.name == "turn" and span.end > start]
    if not turns:
        raise SystemExit("no turn ended after the first step: give it more --steps")
    end = max(span.end for span in turns)
    inside = [span for span in spans if start < span.end <= end]
    return {
        "processor_ms": round(1000 * used(start, end) / len(turns), 1),
        "wall_ms": round(1000 * (end - start) / len(turns), 1),
        "median_latency_ms": round(1000 * statistics.median(span.seconds for span in turns), 1),
        "spans": round(len(inside) / len(turns), 2),
        "turns": len(turns),
    }


class _Meter(threading.Thread):
    """Looks at this process's processor time five times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._seen: list[tuple[float, float]] = []

    def run(self) -> None:
        """Look, until the process ends."""
        while True:
            self._seen.append((time.time(), time.process_time()))
            time.sleep(0.2)

    def between(self, start: float, end: float) -> float:
        """Processor seconds between two moments of the wall clock."""
        used = [cpu for moment, cpu in list(self._seen) if start <= moment <= end]
        return used[-1] - used[0]


@contextmanager
def _process(inner: str, *more: str) -> Iterator[Callable[[str], Any]]:
    """A process of this file's; ask it with a line, and have its answer."""
    command = [sys.executable, __file__, "--inner", inner, *more]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, write = process.stdout, process.stdin

        def ask(what: str) -> Any:
            write.write(f"{what}\n")
            write.flush()
            for line in lines:
                if line.startswith("INNER "):
                    return json.loads(line.removeprefix("INNER "))
            raise SystemExit(f"{' '.join(command)} failed")

        try:
            yield ask
        finally:
            write.close()
            process.wait(60)


if __name__ == "__main__":
    main()
