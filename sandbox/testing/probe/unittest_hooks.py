"""unittest, and every runner that reports through its TestResult, such as Django's."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from .cases import MESSAGE, Cases, TestTimeout, explain

FRAMEWORK = ("unittest.case", "unittest.result", "unittest.suite", "unittest.loader")


class Watch:
    """Stands around TestResult's methods, which all runners' results call in the end."""

    def __init__(self, request: dict[str, Any], channel: Any, guard: Any) -> None:
        self.tell, self.cases = channel.tell, Cases(channel.tell, request["seconds"])
        self.guard, self.told = guard, False
        self.owner = os.getpid()

    def install(self, result: Any) -> None:
        self._around(result, "startTest", self.started)
        self._around(result, "stopTest", self.stopped)
        self._around(result, "addSuccess", self.succeeded)
        self._around(result, "addUnexpectedSuccess", self.surprised)
        self._around(result, "addExpectedFailure", self.skipped)
        self._around(result, "addSkip", self.skipped)
        self._around(result, "addFailure", self.failed)
        self._around(result, "addError", self.erred)
        self._around(result, "addSubTest", self.subtest)

    def _around(self, owner: Any, name: str, told: Any) -> None:
        inner, process = getattr(owner, name), self.owner

        def method(result: Any, test: Any, *rest: Any, **named: Any) -> Any:
            if os.getpid() == process:
                told(test, *rest)
            return inner(result, test, *rest, **named)

        method.__name__ = name
        setattr(owner, name, method)

    def started(self, test: Any) -> None:
        self.told = False
        self.cases.start(test.id())

    def stopped(self, test: Any) -> None:
        self.cases.stop_clock()

    def succeeded(self, test: Any) -> None:
        if not self.told:
            self._end(test, "passed", "")

    def surprised(self, test: Any) -> None:
        self._end(test, "failed", "it passed, and was expected to fail")

    def skipped(self, test: Any, *reason: Any) -> None:
        self._end(test, "skipped", "")

    def failed(self, test: Any, error: Any) -> None:
        self._bad(test, "failed", error)

    def erred(self, test: Any, error: Any) -> None:
        self._bad(test, "timeout" if error[0] is TestTimeout else "error", error)

    def subtest(self, test: Any, inner: Any, error: Any) -> None:
        if error is not None:
            bad = "failed" if issubclass(error[0], test.failureException) else "error"
            self._bad(test, "timeout" if error[0] is TestTimeout else bad, error)

    def _bad(self, test: Any, kind: str, error: Any) -> None:
        message = explain(*error)
        broken = broken_name(test)
        if broken:
            told = str(error[1]).strip().splitlines()  # with a whole trace, when it was an import
            ends = message if len(told) < 2 else told[0] + "\n" + told[-1]
            self.tell(broken=broken, message=ends[:MESSAGE])
        else:
            self._end(test, kind, message)

    def _end(self, test: Any, outcome: str, message: str) -> None:
        if broken_name(test):
            return
        self.told = True
        self.cases.end(test.id(), outcome, message, names_of(test))


def broken_name(test: Any) -> str:
    """For what stands for a module or a class whose tests could not run: its dotted name."""
    held = re.match(r"(?:setUp|tearDown)(?:Class|Module) \((.*)\)$", str(test))
    if held and not hasattr(test, "_testMethodName"):
        return held.group(1)
    if type(test).__name__ in ("_FailedTest", "ModuleImportFailure", "LoadTestsFailure"):
        return str(test._testMethodName)
    return ""


def names_of(test: Any) -> list[str]:
    """Other names that the field's logs give a test: `name (module.Class)`, its first doc line."""
    names = [str(test)]
    method = getattr(test, "_testMethodName", "")
    if method:
        names.append(f"{method} ({type(test).__module__}.{type(test).__qualname__})")
    try:
        first = (test.shortDescription() or "").strip()
    except Exception:  # a test class with odd words about itself
        first = ""
    return names + ([first] if first else [])


def install(request: dict[str, Any], channel: Any, guard: Any) -> None:
    """Make every TestResult of this process tell."""
    import unittest

    watch = Watch(request, channel, guard)
    watch.install(unittest.TestResult)
    guard.seal([name for name in FRAMEWORK if name in sys.modules])


def finish(guard: Any) -> None:
    """Whether a test that has to fail still fails."""
    import unittest

    def canary() -> None:
        raise AssertionError("this test has to fail")

    guard.check_unittest()
    result: Any = unittest.TestResult()
    seen: list[int] = []
    result.startTest = result.stopTest = result.addSuccess = lambda test: None  # not our watch's
    result.addFailure = lambda test, error: seen.append(1)
    unittest.FunctionTestCase(canary).run(result)
    guard.canary(bool(seen))
