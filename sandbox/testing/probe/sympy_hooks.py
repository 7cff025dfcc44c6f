"""SymPy's own runner (`bin/test`): its reporter's methods tell of each test."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from .cases import MESSAGE, Cases, TestTimeout, explain

PLACES = ("sympy.testing.runtests", "sympy.utilities.runtests")


class Watch:
    """Stands around the methods of the runner's reporter."""

    def __init__(self, request: dict[str, Any], channel: Any, guard: Any) -> None:
        self.tell, self.cases = channel.tell, Cases(channel.tell, request["seconds"])
        self.guard, self.file, self.test = guard, "", ""
        self.canary: list[str] | None = None
        """While the canary runs: what the reporter was told of it."""

    def install(self, module: Any) -> None:
        reporter = module.PyTestReporter
        self._around(reporter, "entering_filename", self.entering_file)
        self._around(reporter, "entering_test", self.entering)
        self._around(reporter, "test_pass", lambda *rest: self.end("passed", ""))
        self._around(reporter, "test_xfail", lambda *rest: self.end("skipped", ""))
        self._around(reporter, "test_xpass", lambda *rest: self.end("passed", ""))
        self._around(reporter, "test_skip", lambda *rest: self.end("skipped", ""))
        self._around(reporter, "test_fail", lambda error: self.bad("failed", error))
        self._around(reporter, "test_exception", lambda error: self.bad("error", error))
        self._around(reporter, "import_error", self.broken)
        inner = module.SymPyTests.test

        def test(suite: Any, *rest: Any, **named: Any) -> Any:
            ended = inner(suite, *rest, **named)
            self.run_canary(suite)
            return ended

        module.SymPyTests.test = test

    def _around(self, owner: Any, name: str, told: Any) -> None:
        inner = getattr(owner, name)

        def method(reporter: Any, *rest: Any, **named: Any) -> Any:
            if self.canary is not None:
                self.canary.append(name)
            else:
                told(*rest)
            return inner(reporter, *rest, **named)

        method.__name__ = name
        setattr(owner, name, method)

    def entering_file(self, filename: str, count: Any) -> None:
        self.file = os.path.relpath(filename)

    def entering(self, function: Any) -> None:
        self.test = function.__name__
        self.cases.start(self.file + "::" + self.test)

    def end(self, outcome: str, message: str) -> None:
        if self.test:
            self.cases.end(self.file + "::" + self.test, outcome, message, [self.test])
        self.test = ""

    def bad(self, kind: str, error: Any) -> None:
        self.end("timeout" if error[0] is TestTimeout else kind, explain(*error))

    def broken(self, filename: str, error: Any) -> None:
        self.tell(broken=os.path.relpath(filename), message=explain(*error)[:MESSAGE])

    def run_canary(self, suite: Any) -> None:
        """A file with a test that has to fail, through the same runner, leaving no trace."""
        reporter = suite._reporter
        kept = {
            key: list(value) if isinstance(value, list) else value
            for key, value in vars(reporter).items()
        }
        reporter.write = lambda *rest, **named: None
        self.canary = []
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, self.guard.name + ".py")
            with open(path, "w") as file:
                file.write(f"def {self.guard.name}():\n    assert False\n")
            try:
                suite.test_file(path, False)
            except Exception:  # this version of the runner can't be asked for one file
                self.canary.append("test_fail")
        failed = "test_fail" in self.canary or "test_exception" in self.canary
        self.canary = None
        vars(reporter).clear()
        vars(reporter).update(kept)
        self.guard.canary(failed)


def install(request: dict[str, Any], channel: Any, guard: Any) -> None:
    """Make the runner of the SymPy in the current folder tell."""
    import importlib

    sys.path.insert(0, os.getcwd())
    for name in PLACES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if hasattr(module, "PyTestReporter"):
            Watch(request, channel, guard).install(module)
            return
    raise SystemExit("no SymPy test runner in " + os.getcwd())
