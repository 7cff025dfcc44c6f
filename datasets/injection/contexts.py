"""A pytest plugin that runs inside sandboxes: which test runs which lines, and how each ends.

Standard library and coverage only; the host sends this file. Settings come in variables, so that
it works under any command that starts pytest: PATCHGYM_SURVEY names the file to write, as JSON

    {"tests": {id: [outcome, seconds]}, "lines": {path: {line: [indices into "order"]}}, "order"}

and PATCHGYM_TRACE, where it is set, asks for the lines.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

TARGET = os.environ.get("PATCHGYM_SURVEY", "")
ROOT = os.getcwd()


def _tracer() -> Any:
    if not os.environ.get("PATCHGYM_TRACE"):
        return None
    coverage: Any = importlib.import_module("coverage")
    made = coverage.Coverage(data_file=None, config_file=False, source=[ROOT])
    made.start()
    return made


TRACER = _tracer()
TESTS: dict[str, list[Any]] = {}


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    """Lines that run until the test is torn down are that test's."""
    if TRACER is not None:
        TRACER.switch_context(item.nodeid)
    started = time.monotonic()
    TESTS[item.nodeid] = ["passed", 0.0]
    yield
    TESTS[item.nodeid][1] = time.monotonic() - started
    if TRACER is not None:
        TRACER.switch_context("")


def pytest_runtest_logreport(report: Any) -> None:
    """One bad phase is enough; an expected failure is not a pass."""
    if report.outcome != "passed" or hasattr(report, "wasxfail"):
        TESTS[report.nodeid][0] = "failed" if report.failed else "skipped"


def pytest_sessionfinish() -> None:
    """Write it all."""
    order = sorted(TESTS)
    lines: dict[str, dict[int, list[int]]] = {}
    if TRACER is not None:
        TRACER.stop()
        data = TRACER.get_data()
        place = {test: number for number, test in enumerate(order)}
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            lines[os.path.relpath(file, ROOT)] = {
                line: sorted(place[test] for test in tests if test in place)
                for line, tests in by_line.items()
            }
    with open(TARGET, "w", encoding="utf-8") as out:
        json.dump({"tests": TESTS, "order": order, "lines": lines}, out)
