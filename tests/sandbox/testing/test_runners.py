"""unittest, Django-like and SymPy-like runners, JUnit XML and logs: one report for all."""

from __future__ import annotations

import pytest

from patchgym.sandbox import Sandbox, TestCommand, run_tests

pytestmark = pytest.mark.docker

UNIT = b'''
import unittest

class Numbers(unittest.TestCase):
    def test_good(self):
        """Good numbers are good."""
        print("ok")

    def test_bad(self):
        self.assertEqual(1 + 1, 3)

    def test_error(self):
        raise KeyError("k")

    @unittest.skip("not now")
    def test_skipped(self): pass

    @unittest.expectedFailure
    def test_expected(self): self.fail()

    @unittest.expectedFailure
    def test_surprise(self): pass

    def test_parts(self):
        for n in (1, 2):
            with self.subTest(n=n):
                self.assertEqual(n, 1)

    def test_slow(self):
        import time
        time.sleep(60)

class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise RuntimeError("no class")
    def test_never(self): pass

class Last(unittest.TestCase):
    def test_last(self): pass
'''
# A runner of a project's own, built on unittest as Django's is: other result class, own exit code.
RUNNER = b"""
import sys, unittest

class Result(unittest.TextTestResult):
    def addSuccess(self, test):
        super().addSuccess(test)

suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
result = unittest.TextTestRunner(resultclass=Result, verbosity=2).run(suite)
sys.exit(bool(result.failures or result.errors))
"""
NAMES = (
    "test_unit.Numbers.test_good", "test_unit.Numbers.test_bad", "test_unit.Numbers.test_error",
    "test_unit.Numbers.test_skipped", "test_unit.Numbers.test_expected",
    "test_unit.Numbers.test_surprise", "test_unit.Numbers.test_parts",
    "test_unit.Numbers.test_slow", "test_unit.Broken.test_never", "test_unit.Last.test_last",
)  # fmt: skip
OUTCOMES = (
    "passed", "failed", "error", "skipped", "skipped", "failed", "failed", "timeout", "error",
    "passed",
)  # fmt: skip


async def test_unittest_outcomes(sandbox: Sandbox) -> None:
    await sandbox.write("test_unit.py", UNIT)
    command = TestCommand(kind="unittest", command="python3 -m unittest test_unit")
    report = await run_tests(
        sandbox, test_ids=NAMES, command=command, timeout=60, per_test_timeout=1
    )
    assert dict(report.outcomes) == dict(zip(NAMES, OUTCOMES, strict=True))
    assert report.consistent
    assert report.evidence == "report"
    assert report.loaded == frozenset({"test_unit.py"})
    assert "1 + 1, 3" in report.messages["test_unit.Numbers.test_bad"]
    assert report.suspicions == ()


async def test_a_runner_on_top_of_unittest_and_the_names_of_its_log(sandbox: Sandbox) -> None:
    await sandbox.write("test_unit.py", UNIT)
    await sandbox.write("tools/run.py", RUNNER)
    command = TestCommand(
        kind="unittest", command="cd . && PYTHONPATH=. tools/run.py test_unit.Numbers"
    )
    asked = [
        "test_good (test_unit.Numbers)",
        "Good numbers are good.",
        "test_bad (test_unit.Numbers)",
    ]
    report = await run_tests(
        sandbox, test_ids=asked, command=command, timeout=60, per_test_timeout=1
    )
    assert list(report.outcomes.values()) == ["passed", "passed", "failed"]
    assert report.consistent
    assert report.others["test_unit.Numbers.test_error"] == "error"


async def test_modules_that_do_not_load_break_their_tests_only(sandbox: Sandbox) -> None:
    await sandbox.write("a/test_x.py", b"import nothing_like_this")
    await sandbox.write("a/__init__.py", b"")
    await sandbox.write("test_unit.py", UNIT)
    command = TestCommand(kind="unittest", command="python3 -m unittest a.test_x test_unit.Last")
    asked = ["a.test_x.T.test_a", "test_unit.Last.test_last"]
    report = await run_tests(sandbox, test_ids=asked, command=command, timeout=60)
    assert list(report.outcomes.values()) == ["error", "passed"]
    assert "nothing_like_this" in report.messages["a.test_x.T.test_a"]


# The parts of SymPy's runner that our hooks know, written for this test.
SYMPY = b"""
import sys, traceback

class PyTestReporter:
    def __init__(self): self._failed, self._exceptions = [], []
    def write(self, text): sys.stdout.write(text)
    def entering_filename(self, filename, n): self.write(filename)
    def entering_test(self, f): self.write(f.__name__ + " ")
    def test_pass(self, char="."): self.write("ok\\n")
    def test_xfail(self): self.write("f\\n")
    def test_xpass(self, v): self.write("X\\n")
    def test_skip(self, v=None): self.write("s\\n")
    def test_fail(self, exc_info): self._failed.append(exc_info); self.write("F\\n")
    def test_exception(self, exc_info): self._exceptions.append(exc_info); self.write("E\\n")
    def import_error(self, filename, exc_info): self._exceptions.append(exc_info)

class SymPyTests:
    def __init__(self, files): self.files, self._reporter = files, PyTestReporter()
    def test(self, sort=False):
        for each in self.files: self.test_file(each, sort)
        return not (self._reporter._failed or self._reporter._exceptions)
    def test_file(self, filename, sort=True):
        scope = {}
        try: exec(compile(open(filename).read(), filename, "exec"), scope)
        except Exception: return self._reporter.import_error(filename, sys.exc_info())
        found = [scope[name] for name in scope if name.startswith("test_")]
        self._reporter.entering_filename(filename, len(found))
        for function in found:
            self._reporter.entering_test(function)
            try: function()
            except AssertionError: self._reporter.test_fail(sys.exc_info())
            except Exception: self._reporter.test_exception(sys.exc_info())
            else: self._reporter.test_pass()
"""
SYMPY_RUN = b"""
import os, sys
sys.path.insert(0, os.getcwd())
from sympy.testing.runtests import SymPyTests
sys.exit(0 if SymPyTests(sys.argv[1:]).test() else 1)
"""


async def test_sympy_names_and_the_canary(sandbox: Sandbox) -> None:
    await sandbox.write("sympy/__init__.py", b"")
    await sandbox.write("sympy/testing/__init__.py", b"")
    await sandbox.write("sympy/testing/runtests.py", SYMPY)
    await sandbox.write("bin/test", SYMPY_RUN)
    tests = b"def test_a(): print('test_b ok')\ndef test_b(): assert 1 == 2\ndef test_c(): 1 / 0\n"
    await sandbox.write("sympy/core/tests/test_x.py", tests)
    await sandbox.write("sympy/core/tests/test_y.py", b"import nothing_like_this\n")
    command = TestCommand(kind="sympy", command="python3 bin/test {test_files}")
    files = ["sympy/core/tests/test_x.py"]
    report = await run_tests(
        sandbox,
        test_ids=["test_a", "test_b", "test_c"],
        command=command,
        test_files=files,
        timeout=60,
    )
    assert list(report.outcomes.values()) == ["passed", "failed", "error"]
    assert (report.consistent, report.suspicions) == (True, ())
    swallowing = SYMPY.replace(
        b"self._reporter.test_fail(sys.exc_info())", b"self._reporter.test_pass()"
    )
    await sandbox.write("sympy/testing/runtests.py", swallowing)
    report = await run_tests(
        sandbox, test_ids=["test_b"], command=command, test_files=files, timeout=60
    )
    assert [each.rule for each in report.suspicions] == ["canary-passed"]


async def test_junit_from_any_command(sandbox: Sandbox) -> None:
    await sandbox.write("test_x.py", b"def test_a(): pass\ndef test_b(): assert 0\n")
    command = TestCommand(
        kind="junit", command="python3 -m pytest --junitxml={report} {test_files}"
    )
    report = await run_tests(
        sandbox, test_ids=["test_x::test_a", "test_b", "test_c"], command=command,
        test_files=["test_x.py"], timeout=60,
    )  # fmt: skip
    assert list(report.outcomes.values()) == ["passed", "failed", "not_run"]
    assert (report.evidence, report.consistent) == ("junit", True)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("true {report}", "wrote no report"),
        ("echo '<testsuite><testcase name=\"a\"/>' > {report}", "no XML"),
        ("head -c 500M /dev/zero > {report} || true", "over 16 MiB"),
        ("mkfifo {report}", "wrote no report"),
        ("echo '<s><testcase name=\"a\"/></s>' > {report}; exit 1", "every test passed, and"),
        (
            'printf \'<!DOCTYPE x [<!ENTITY a "b">]><s><testcase name="a"/></s>\' > {report}',
            "document type",
        ),
    ],
)
async def test_bad_junit_is_named_and_proves_nothing(
    sandbox: Sandbox, command: str, problem: str
) -> None:
    report = await run_tests(
        sandbox, test_ids=["a"], command=TestCommand(kind="junit", command=command), timeout=60
    )
    assert not report.consistent
    assert problem in report.problem
    assert not report.all_passed(["a"])


async def test_pytest_under_a_project_s_own_command(sandbox: Sandbox) -> None:
    await sandbox.write("test_x.py", b"def test_a(): pass\ndef test_b(): assert 0\n")
    command = TestCommand(command="A=1 pytest -q -x {test_files}", variables={"B": "2"})
    report = await run_tests(sandbox, test_ids=["test_x.py::test_a"], command=command, timeout=60)
    assert dict(report.outcomes) == {"test_x.py::test_a": "passed"}
    assert dict(report.others) == {"test_x.py::test_b": "failed"}
    assert report.consistent


async def test_a_name_in_the_work_tree_does_not_replace_the_library(sandbox: Sandbox) -> None:
    for name in ("json.py", "types.py", "runpy.py", "_pytest/__init__.py", "pluggy.py"):
        await sandbox.write(name, b"import os; os._exit(0)\n")
    await sandbox.write("test_x.py", b"def test_a(): assert 0\n")
    report = await run_tests(sandbox, test_ids=["test_x.py::test_a"], timeout=60)
    assert not report.all_passed(["test_x.py::test_a"])


async def test_the_number_of_cores_and_chance_are_pinned(sandbox: Sandbox) -> None:
    code = b"import os, random\ndef test_a(): raise KeyError(os.cpu_count(), random.random())\n"
    await sandbox.write("test_x.py", code)
    asked = ["test_x.py::test_a"]
    first = await run_tests(sandbox, test_ids=asked, timeout=60)
    second = await run_tests(sandbox, test_ids=asked, timeout=60)
    assert first.messages == second.messages
    assert "(1, 0." in first.messages[asked[0]]
