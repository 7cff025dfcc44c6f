"""What several runs say of a candidate's tests: lists, flakes, and why there are none."""

from __future__ import annotations

from typing import Any

import pytest

from patchgym.datasets.mining.split import Dropped
from patchgym.datasets.mining.trials import Lists, Ran, _dropped, lists_of
from patchgym.sandbox import TestReport


def ran(outcomes: dict[str, str], messages: dict[str, str] | None = None, **changes: Any) -> Ran:
    values: dict[str, Any] = {
        "outcomes": outcomes, "messages": messages or {}, "exit_code": 0, "timed_out": False,
        "duration": 1.0, "cpu_seconds": 1.0, "consistent": True, "output": "",
    }  # fmt: skip
    return Ran(report=TestReport(**{**values, **changes}), outcomes=outcomes)


def test_lists() -> None:
    after = [ran(dict.fromkeys("abcdefg", "passed") | {"x": "failed"})] * 2
    without = {
        "a": "failed", "b": "error", "c": "passed", "d": "skipped", "e": "not_run", "f": "passed",
        "x": "failed",
    }  # fmt: skip
    before = [
        ran(without, {"a": "at 0x12345", "b": "one"}),
        ran(without | {"f": "failed"}, {"a": "at 0x54321", "b": "two"}),
    ]
    assert lists_of(before, after) == Lists(
        fail_to_pass=("a", "b"),
        pass_to_pass=("c",),
        flaky={"f": 0.5},
        failures={"a": "at 0x...", "b": ""},
        before={"error": 1, "failed": 1},
    )


def test_a_flaky_fix_is_none() -> None:
    after = [ran({"a": "passed"}), ran({"a": "failed"}), ran({"a": "passed"})]
    before = [ran({"a": "failed"})] * 3
    assert lists_of(before, after) == Dropped(reason="flaky", detail="a")
    assert lists_of(before, [ran({"a": "failed"})] * 3) == Dropped(
        reason="not-broken", detail="no test fails each time without the fix"
    )


DROPS = {
    "timeout": ran({"a": "passed"}, timed_out=True),
    "unreliable": ran({"a": "passed"}, consistent=False, problem="exit code 3"),
    "network": ran({"a": "failed"}, output="E socket.gaierror: Name or service not known"),
    "no-tests-ran": ran({}, consistent=False, output="ModuleNotFoundError: No module named 'x'"),
    "fails-with-fix": ran({"a": "failed"}, output="E   ValueError: x\nfailed"),
}


@pytest.mark.parametrize("reason", DROPS)
def test_runs_that_are_of_no_use(reason: str) -> None:
    assert _dropped(DROPS[reason]).reason == reason


def test_a_drop_says_what_it_saw() -> None:
    assert _dropped(DROPS["fails-with-fix"]).detail == "1 failed: E ValueError: x"
    assert "No module named 'x'" in _dropped(DROPS["no-tests-ran"]).detail
