"""The probe's records are believed only as a whole, in order, and with the exit code."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.sandbox.testing.report import Flake, TestRun, settle, wilson
from patchgym.sandbox.testing.story import Told, read_story

NONCE = "n" * 32
PASSED = {"test": "a", "outcome": "passed", "message": "", "seconds": 0.1}
FAILED = {**PASSED, "test": "b", "outcome": "failed"}


def lines(*records: dict[str, object], nonce: str = NONCE) -> bytes:
    whole = [{"nonce": nonce, "n": number, **each} for number, each in enumerate(records)]
    return b"".join(json.dumps(each).encode() + b"\n" for each in whole)


def read(data: bytes, exit_code: int | None = 0, *, timed_out: bool = False) -> Told:
    return read_story(NONCE, data, exit_code=exit_code, timed_out=timed_out, lost=False)


def test_a_whole_story_is_believed() -> None:
    told = read(lines({"start": "a"}, PASSED, {"done": 0}))
    assert (told.problem, told.tests["a"].outcome, told.tests["a"].seconds) == ("", "passed", 0.1)


def test_the_files_that_were_loaded_are_known_only_when_they_are_told() -> None:
    told = read(lines(PASSED, {"loaded": ["src/a.py", "b.py"]}, {"done": 0}))
    assert (told.problem, told.loaded) == ("", frozenset({"src/a.py", "b.py"}))
    assert read(lines(PASSED, {"done": 0})).loaded is None
    assert read(lines(PASSED, {"loaded": 3}, {"done": 0})).loaded is None


@pytest.mark.parametrize(
    ("data", "exit_code", "problem"),
    [
        (lines(PASSED), 0, "last word"),
        (lines(PASSED, {"done": 0}), 1, "told exit code 0"),
        (lines(PASSED, {"done": 1}), 1, "every test passed, and the exit code is 1"),
        (lines(FAILED, {"done": 0}), 0, "a test did not pass, and the exit code is 0"),
        (lines({"broken": "f.py", "message": ""}, {"done": 0}), 0, "a test did not pass"),
        (b"junk\n" + lines(PASSED, {"done": 0}), 0, "1 lines"),
        (lines(PASSED, {"done": 0}) + lines(PASSED), 0, "1 lines"),
        (lines(PASSED, {"done": 0}, nonce="other"), 0, "2 lines"),
        (lines(PASSED, {"done": 0}).replace(b'"n": 1', b'"n": 7'), 0, "1 lines"),
        (lines({"done": 4}), 4, "no test ran, and the exit code is 4"),
        (b"", None, "last word"),
    ],
)
def test_what_does_not_agree_is_named(data: bytes, exit_code: int | None, problem: str) -> None:
    assert problem in read(data, exit_code).problem


def test_a_forged_line_spoils_the_run_and_counts_for_nothing() -> None:
    forged = json.dumps({"nonce": NONCE, "n": 0, **{**FAILED, "outcome": "passed"}}).encode()
    told = read(lines({"start": "b"}, FAILED, {"done": 1}) + forged, 1)
    assert told.tests["b"].outcome == "failed"
    assert told.problem


def test_the_end_inside_a_test() -> None:
    assert read(lines({"start": "a"}), None).tests["a"].outcome == "error"
    assert read(lines({"start": "a"}), None, timed_out=True).tests["a"].outcome == "timeout"


def test_asked_ids_are_found_by_other_names_files_and_classes() -> None:
    told = read(
        lines(
            {**PASSED, "test": "t/x.py::C::a[1::2]", "names": ["a", "a (t.C)"]},
            {**FAILED, "test": "t/x.py::C::b", "names": ["b"]},
            {"broken": "t/y.py", "message": "no module"},
            {"done": 1},
        ),
        1,
    )
    asked = ["a (t.C)", "t/x.py::C", "t/x.py", "t/x.py::C::a", "t/y.py::z", "t/x", "a[1::2]"]
    found = {test: run.outcome for test, run in told.find(asked).items()}
    assert found == {
        "a (t.C)": "passed",
        "t/x.py::C": "failed",
        "t/x.py": "failed",
        "t/x.py::C::a": "passed",
        "t/y.py::z": "error",
        "t/x": "not_run",
        "a[1::2]": "not_run",
    }


def test_ids_that_were_cut_at_a_blank_stand_for_all_that_begin_so_and_agree() -> None:
    both = {**PASSED, "test": "t.py::a[assert x]"}, {**PASSED, "test": "t.py::a[assert y]"}
    told = read(lines(*both, {"done": 0}))
    assert told.find(["t.py::a[assert"])["t.py::a[assert"].outcome == "passed"
    split = read(lines(both[0], {**both[1], "outcome": "failed"}, {"done": 1}), 1)
    assert split.find(["t.py::a[assert"])["t.py::a[assert"].outcome == "not_run"


@given(st.binary(max_size=300), st.integers(-1, 5) | st.none())
def test_no_bytes_make_a_pass_without_the_nonce(data: bytes, exit_code: int | None) -> None:
    told = read(data, exit_code)
    assert not told.tests
    assert told.problem


@given(st.lists(st.sampled_from(["passed", "failed", "timeout", "error"]), min_size=1))
def test_one_pass_among_failures_is_flaky(outcomes: list[str]) -> None:
    settled = settle([TestRun(outcome=each) for each in outcomes])  # type: ignore[arg-type]
    assert (settled == "flaky") == ("passed" in outcomes and set(outcomes) != {"passed"})


def test_runs_that_did_not_reach_a_test_say_nothing() -> None:
    reached, missed = TestRun(outcome="passed"), TestRun(outcome="not_run")
    assert settle([missed, reached]) == "passed"
    assert settle([missed, missed]) == "not_run"


def test_a_flake_has_a_rate_with_an_interval() -> None:
    flake = Flake(runs=10, failures=2)
    assert flake.rate == 0.2
    assert flake.interval == wilson(0.2, 10)
    assert flake.interval == pytest.approx((0.0567, 0.5098), abs=1e-4)  # a published table's values
