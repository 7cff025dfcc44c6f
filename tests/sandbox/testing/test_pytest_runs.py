"""Test runs: every asked test gets an outcome, and nothing printed or faked makes it a pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.sandbox import Sandbox, TestReport, run_tests

pytestmark = pytest.mark.docker
Make = Callable[..., tuple[Path, str]]

CALC = "def add(a, b):\n    return a - b\n\ndef crash(x):\n    return x['key']\n"
TESTS = """
import unittest
import pytest
from calc import add, crash

def test_good():
    assert add(2, 0) == 2

def test_wrong():
    assert add(2, 3) == 5

def test_other():
    assert add(2, 3) > 0, "must be above"

def test_crash():
    assert crash({}) == 1

def test_raises():
    with pytest.raises(ValueError):
        add(1, 2)

@pytest.fixture
def broken():
    raise RuntimeError("no fixture")

def test_broken(broken):
    pass

@pytest.fixture
def messy():
    yield
    raise RuntimeError("teardown")

def test_messy(messy):
    pass

@pytest.mark.skip
def test_skipped():
    pass

@pytest.mark.xfail
def test_xfail():
    assert False

@pytest.mark.xfail(strict=True)
def test_xpass():
    pass

@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    assert n == 1

class TestUnit(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(add(2, 3), 5)

def test_printed():
    print("PASSED test_x.py::test_wrong\\n20 passed in 0.1s")
"""


async def run(
    sandbox: Sandbox,
    files: dict[str, str],
    *names: str,
    timeout: float = 60,
    per_test_timeout: float | None = None,
) -> TestReport:
    """Write files and run tests of test_x.py by name."""
    for path, text in files.items():
        await sandbox.write(path, text.encode())
    ids = [name if ".py" in name else f"test_x.py::{name}" for name in names]
    return await run_tests(
        sandbox, test_ids=ids, timeout=timeout, per_test_timeout=per_test_timeout
    )


def outcome(report: TestReport) -> dict[str, str]:
    """Outcomes by test name."""
    return {test.rpartition("::")[2]: outcome for test, outcome in report.outcomes.items()}


async def test_outcomes_and_messages(sandbox: Sandbox) -> None:
    names = {
        "test_good": "passed", "test_wrong": "failed", "test_other": "failed",
        "test_crash": "failed", "test_raises": "failed", "test_broken": "error",
        "test_messy": "error", "test_skipped": "skipped", "test_xfail": "skipped",
        "test_xpass": "failed", "test_many[1]": "passed", "test_many[2]": "failed",
        "test_many": "failed", "test_nowhere": "not_run", "TestUnit::test_unit": "failed",
        "test_printed": "passed",
    }  # fmt: skip
    report = await run(sandbox, {"calc.py": CALC, "test_x.py": TESTS}, *names, "gone.py::test_a")
    expected = {name.rpartition("::")[2]: what for name, what in names.items()}
    assert outcome(report) == expected | {"test_a": "not_run"}
    assert report.consistent and report.exit_code == 1 and not report.timed_out
    assert report.loaded == frozenset({"calc.py", "test_x.py"})
    message = {test.rpartition("::")[2]: text for test, text in report.messages.items()}
    assert message["test_wrong"] == "assert add(2, 3) == 5\ngot -1"
    assert message["test_other"].splitlines()[1].startswith("must be above")
    assert message["test_crash"] == "KeyError: 'key'\nat calc.py:5: return x['key']"
    assert message["test_raises"].startswith("Failed: DID NOT RAISE")
    assert message["test_broken"].startswith("RuntimeError: no fixture")
    assert message["test_unit"].splitlines()[1] == "-1 != 5"
    assert "test_good" not in message
    assert report.all_passed(["test_x.py::test_good"])
    assert not report.all_passed(["test_x.py::test_good", "test_x.py::test_nowhere"])


async def test_files_and_classes_stand_for_their_tests(sandbox: Sandbox) -> None:
    files = {"test_x.py": "class TestA:\n    def test_a(self): pass\n    def test_b(self): 1 / 0\n"}
    report = await run(sandbox, files, "test_x.py", "TestA", "TestA::test_a")
    assert list(report.outcomes.values()) == ["failed", "failed", "passed"]


async def test_a_run_that_takes_too_long(sandbox: Sandbox) -> None:
    text = "import time\ndef test_a(): pass\ndef test_b(): time.sleep(60)\ndef test_c(): pass\n"
    report = await run(sandbox, {"test_x.py": text}, "test_a", "test_b", "test_c", timeout=5)
    assert outcome(report) == {"test_a": "passed", "test_b": "timeout", "test_c": "not_run"}
    assert report.timed_out and not report.consistent and report.exit_code is None
    assert report.loaded is None
    limited = await run(sandbox, {}, "test_a", "test_b", "test_c", per_test_timeout=0.2)
    assert outcome(limited) == {"test_a": "passed", "test_b": "timeout", "test_c": "passed"}
    assert limited.consistent and not limited.timed_out


async def test_a_file_that_can_not_be_collected(sandbox: Sandbox) -> None:
    files = {"test_x.py": "import calc\ncalc.gone\ndef test_a(): pass\n", "calc.py": CALC}
    files["test_y.py"] = "def test_y(): pass\n"
    report = await run(sandbox, files, "test_a", "test_y.py::test_y")
    assert outcome(report) == {"test_a": "error", "test_y": "passed"}
    assert "has no attribute 'gone'" in report.messages["test_x.py::test_a"]
    assert report.consistent
    syntax = await run(sandbox, {"calc.py": "def add(:\n"}, "test_a")
    assert outcome(syntax) == {"test_a": "error"}
    assert "SyntaxError" in syntax.messages["test_x.py::test_a"]


CHEATS = {
    "exits at import": "import os\nos._exit(0)\ndef test_a(): assert 0\n",
    "exits in the test": "import os\ndef test_a(): os._exit(0)\n",
    "exits politely": "import sys\nsys.exit(0)\ndef test_a(): assert 0\n",
    "prints": "print('test_x.py::test_a PASSED\\n1 passed')\ndef test_a(): assert 0\n",
    "writes to the report": (
        "import os\nfor fd in range(3, 9):\n    try: os.write(fd, b'"
        '{"nonce": "", "test": "test_x.py::test_a", "outcome": "passed"}\\n'
        "')\n    except OSError: pass\ndef test_a(): assert 0\n"
    ),
    "kills itself": "import os\ndef test_a(): os.kill(os.getpid(), 9)\n",
    "stops pytest": "import pytest\npytest.exit('enough', 0)\ndef test_a(): assert 0\n",
}


async def test_cheats_do_not_pass(sandbox: Sandbox) -> None:
    for name, text in CHEATS.items():
        report = await run(sandbox, {"test_x.py": text}, "test_a")
        assert (name, report.outcomes["test_x.py::test_a"] != "passed") == (name, True)
        assert not report.all_passed(["test_x.py::test_a"])
        if name not in ("prints", "exits politely", "stops pytest"):
            assert (name, report.consistent) == (name, False)
    forged = await run(sandbox, {"conftest.py": CHEATS["exits at import"]}, "test_a")
    assert outcome(forged) == {"test_a": "not_run"} and not forged.consistent


async def test_a_thread_left_behind_does_not_hold_the_verdict(sandbox: Sandbox) -> None:
    text = "import threading, time\ndef test_a(): threading.Thread(target=time.sleep, args=(60,)).start()\n"  # noqa: E501
    report = await run(sandbox, {"test_x.py": text}, "test_a")
    assert outcome(report) == {"test_a": "passed"} and report.duration < 30


async def test_lean_runs_leave_out_plugins_only(sandbox: Sandbox) -> None:
    text = "def test_a(tmp_path, monkeypatch, capsys, caplog, recwarn, request): pass\n"
    assert outcome(await run(sandbox, {"test_x.py": text}, "test_a")) == {"test_a": "passed"}
    full = await run_tests(sandbox, test_ids=["test_x.py::test_a"], timeout=60, lean=False)
    assert full.all_passed(["test_x.py::test_a"])
    nothing = await run_tests(sandbox, test_ids=[], timeout=60)
    assert nothing.outcomes == {} and nothing.consistent
