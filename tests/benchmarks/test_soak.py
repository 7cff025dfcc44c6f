"""The soak tells growth that lasts from what fills up at the start."""

from __future__ import annotations

import importlib.util
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

MIB_AN_HOUR = 1 / 3600


@pytest.fixture
def soak(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/soak.py, which is in no package."""
    path = root / "benchmarks" / "soak.py"
    spec = importlib.util.spec_from_file_location("bench_soak", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def reported(soak: ModuleType, memory: Callable[[float], float]) -> dict[str, Any]:
    """What is said of a quarter of an hour in which memory was that, MiB, and all else flat."""
    noise = random.Random(3)
    times = [5.0 * n for n in range(180)]
    still = dict.fromkeys((*soak.LIMITS, "disk_mib", "rollouts", "steps"), 1.0)
    samples = [{**still, "rss_mib": memory(at) + noise.uniform(-1, 1)} for at in times]
    found: dict[str, Any] = soak.report(times, samples)
    return found


def test_what_fills_up_is_flat(soak: ModuleType) -> None:
    found = reported(soak, lambda at: 480 - 70 * math.exp(-at / 200))
    assert found["not_flat"] == []
    first, second = found["per_hour"]["rss_mib"]
    assert first > 100 > 50 > second


def test_a_leak_is_told(soak: ModuleType) -> None:
    def leaking(at: float) -> float:
        return 480 - 70 * math.exp(-at / 200) + 238 * MIB_AN_HOUR * at

    assert reported(soak, leaking)["not_flat"] == ["rss_mib"]


def test_a_small_leak_passes_and_one_past_the_limit_does_not(soak: ModuleType) -> None:
    limit = soak.LIMITS["rss_mib"]
    assert reported(soak, lambda at: 400 + 0.7 * limit * MIB_AN_HOUR * at)["not_flat"] == []
    assert reported(soak, lambda at: 400 + 1.4 * limit * MIB_AN_HOUR * at)["not_flat"]


def test_what_grows_in_leaps_is_told_by_its_rise(soak: ModuleType) -> None:
    found = reported(soak, lambda at: 400 + 100 * (at > 600))
    assert found["not_flat"] == ["rss_mib"] and found["rise"]["rss_mib"] > 90
    assert max(found["per_hour"]["rss_mib"]) < soak.LIMITS["rss_mib"]
