"""The report of the sandbox benchmark: spreads, ratios, verdicts, the page."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def report_module(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/sandbox/report.py, which is in no package."""
    path = root / "benchmarks" / "sandbox" / "report.py"
    spec = importlib.util.spec_from_file_location("bench_sandbox_report", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_page_tells_medians_ratios_verdicts_and_who_was_missing(
    report_module: ModuleType,
) -> None:
    report = report_module.Report()
    for seconds in (0.001, 0.002, 0.003):
        report.time("exec", "ours", seconds)
        report.time("exec", "theirs", 10 * seconds)
    report.fact("survivors", "ours", 0, "of 5")
    report.note("rival", "everything", "can't be installed: no such package")
    report.goal("ten times faster", report.ratio("exec", "theirs", "ours"), 10, at_least=True)
    report.goal("no survivors", report.value("survivors", "ours"), 0)
    report.goal("under 1 ms", report.median("exec", "ours"), 1)
    report.goal("not tried", report.median("exec", "nobody"), 1)
    text = report_module.page(report, head=["- today"], reference={"exec": "ours"})
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "| ten times faster | 10 | met |" in lines
    assert "| no survivors | 0 | met |" in lines
    assert "| under 1 ms | 2 | missed |" in lines
    assert "| not tried | - | not measured |" in lines
    assert "| theirs | 20 | 15 to 25 | 3 | 10 |" in lines
    assert "| survivors | ours | 0 of 5 |" in lines
    assert "- rival, everything: can't be installed: no such package" in lines
    found = report_module.result(report, {"exec_vs_theirs": 10.0, "missing": None})
    assert found["exec_vs_theirs"] == 10 and "missing" not in found
    assert found["spread"]["exec / theirs"] == {"p25": 15, "p50": 20, "p75": 25, "count": 3}
