"""What `make bench-telemetry` measures: blocks of calls, with all that they lead to on file."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from patchgym.trainer.telemetry import SpanRecord


def blocks(root: Path, side: str, *kinds: str) -> list[dict[str, Any]]:
    """What a process of one side tells of the blocks that it is asked for."""
    done = subprocess.run(
        [sys.executable, str(root / "benchmarks" / "bench_telemetry.py"), "--inner", side],
        input="".join(f"{kind}\n" for kind in kinds),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = [line.partition("INNER ")[2] for line in done.stdout.splitlines()]
    return [json.loads(line) for line in lines if line]


def test_a_block_with_telemetry_ends_when_its_spans_are_on_file(root: Path) -> None:
    turn, rollout = blocks(root, "on", "turn", "quickstart")
    assert (turn["turns"], rollout["turns"]) == (200, 200)
    assert turn["spans"] == 100 * (1 + 2 * 3)
    # The rollout, its two ends, two turns of three, scoring with a component; three runs of tests.
    assert rollout["spans"] == 100 * (3 + 2 * 3 + 2 + 3 * 8)
    assert rollout["bytes"] > 200 * rollout["spans"]
    assert rollout["cpu_s"] > 0


@pytest.mark.parametrize("kind", ["turn", "quickstart"])
def test_a_block_without_an_sdk_keeps_nothing(root: Path, kind: str) -> None:
    [block] = blocks(root, "off", kind)
    assert (block["turns"], block["spans"], block["bytes"]) == (200, 0, 0)


@pytest.fixture
def bench(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/bench_telemetry.py, which is in no package."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    spec = importlib.util.spec_from_file_location(
        "bench_telemetry", root / "benchmarks" / "bench_telemetry.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def span(name: str, start: float, end: float) -> SpanRecord:
    return SpanRecord(name=name, start=start, end=end, trace_id="0" * 32, span_id="0" * 16)


def test_a_real_turn_is_taken_from_after_the_first_step(bench: ModuleType) -> None:
    spans = [
        span("turn", 0, 5),
        span("step", 0, 10),
        span("command", 11, 12),
        span("turn", 9, 12),
        span("turn", 12, 20),
        span("step", 10, 30),
    ]
    assert bench._a_turn(spans, lambda start, end: (end - start) / 2) == {
        "processor_ms": 2500.0,
        "wall_ms": 5000.0,
        "median_latency_ms": 5500.0,
        "spans": 1.5,
        "turns": 2,
    }
    with pytest.raises(SystemExit, match="more --steps"):
        bench._a_turn(spans[:2], lambda start, end: 0.0)


def test_shares_are_those_of_the_real_turns_spans_with_the_background(bench: ModuleType) -> None:
    whole = {"added_ms": 0.8, "interval": [0.7, 0.9], "off_ms": 0.1, "spans": 16.0}
    calls = {name: {**whole, "bytes_a_span": 300.0} for name in ("turn", "quickstart")}
    turn = {"processor_ms": 400.0, "wall_ms": 1000.0, "spans": 8.0}
    found = bench._summary(calls, 0.001, turn)
    # Half the spans at 0.05 ms each, and 1 ms a second of background.
    assert found["share_of_processor_time"] == pytest.approx((0.4 + 1.0) / 400)
    assert found["share_of_wall"] == pytest.approx((0.4 + 1.0) / 1000)
    assert found["spread"]["share_of_wall"] == pytest.approx([1.35e-3, 1.45e-3])
    assert found["below_1_percent"] is True
    assert bench._summary(calls, 0.001, turn | {"processor_ms": 100.0})["below_1_percent"] is False


def test_an_interval_is_of_the_mean(bench: ModuleType) -> None:
    low, high = bench._interval([1.0, 2.0, 3.0, 4.0] * 10)
    assert 2.0 < low < 2.5 < high < 3.0
    assert bench._interval([2.0] * 10) == [2.0, 2.0]
