"""Pytest: a plugin that tells of each test, with a test of its own that has to fail."""

from __future__ import annotations

import gc
import os
import random
import sys
from typing import Any

from .cases import MESSAGE, Cases, TestTimeout

UNNEEDED = (
    *("cacheprovider", "doctest", "junitxml", "pastebin", "nose", "setuponly", "setupplan"),
    *("stepwise", "faulthandler", "legacypath", "threadexception"),
)
SHUFFLERS = ("randomly", "random_order", "reverse")
FRAMEWORK = (
    *("_pytest.runner", "_pytest.python", "_pytest.nodes", "_pytest.main", "_pytest.reports"),
    *("_pytest.outcomes", "_pytest.skipping", "_pytest.fixtures", "_pytest.unittest"),
    *("_pytest.assertion.rewrite", "_pytest.python_api", "_pytest.raises", "_pytest.recwarn"),
    *("pluggy._hooks", "pluggy._callers", "pluggy._manager", "pluggy.hooks", "pluggy.callers"),
)


class Probe:
    """A pytest plugin."""

    def __init__(self, request: dict[str, Any], channel: Any, guard: Any) -> None:
        self.asked, self.guard = set(request["tests"]), guard
        self.pick, self.order = request["pick"], request["order"]
        self.tell, self.cases = channel.tell, Cases(channel.tell, request["seconds"])
        self.phases: dict[str, tuple[str, str]] = {}
        self.canary: Any = None

    def pytest_addoption(self, parser: Any) -> None:
        """Pytest's own plugins are loaded by now, and nothing of the repository is."""
        self.guard.seal([name for name in FRAMEWORK if name in sys.modules])

    def pytest_collection(self) -> None:
        gc.enable()  # before any code under test

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = str(report.longrepr).strip().splitlines()
            self.tell(broken=report.nodeid, message="\n".join(text[-2:])[:MESSAGE])

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        if self.pick:
            keep = [item for item in items if _wanted(item.nodeid, self.asked)]
            if len(keep) < len(items):
                gone = [item for item in items if not _wanted(item.nodeid, self.asked)]
                config.hook.pytest_deselected(items=gone)
                items[:] = keep
        if self.order is not None:
            items[:] = _shuffled(items, self.order)

    def pytest_collection_finish(self, session: Any) -> None:
        self.canary = _canary(session.items, self.guard.name)
        if self.canary is not None:
            session.items.append(self.canary)

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        if item is not self.canary:
            return None
        from _pytest.runner import runtestprotocol

        self.phases.clear()
        runtestprotocol(item, log=False, nextitem=nextitem)
        failed = any(kind in ("failed", "error") for kind, _ in self.phases.values())
        self.guard.canary(failed)
        return True

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.phases.clear()
        self.cases.start(nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.cases.stop_clock()
        kinds = {name: kind for name, (kind, _) in self.phases.items()}
        bad = [name for name in ("call", "setup", "teardown") if kinds.get(name) != "passed"]
        if not bad:
            self.cases.end(nodeid, "passed", "")
            return
        where = next((name for name in ("setup", "call", "teardown") if name in bad), "call")
        kind, message = self.phases.get(where, ("error", "it did not run to its end"))
        self.cases.end(nodeid, kind, message)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        kind, message = "passed", ""
        if call.excinfo is not None:
            name = call.excinfo.type.__name__
            if name in ("Skipped", "XFailed"):
                kind = "skipped"
            elif call.excinfo.type is TestTimeout:
                kind = "timeout"
            else:
                kind = "failed" if call.when == "call" else "error"
            message = "" if kind == "skipped" else explain(call.excinfo)
        self.phases[call.when] = (kind, message)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """The last word on expected failures is pytest's own, and on tests run elsewhere."""
        if hasattr(report, "wasxfail"):
            self.phases[report.when] = ("passed" if report.passed else "skipped", "")
        elif report.when not in self.phases or (
            report.failed and self.phases[report.when][0] == "passed"
        ):
            bad = "failed" if report.when == "call" else "error"
            text = str(report.longrepr)[:MESSAGE] if report.failed else ""
            self.phases[report.when] = (bad if report.failed else report.outcome, text)


def _shuffled(items: list[Any], seed: int) -> list[Any]:
    """The files in another order, and the tests of each."""
    chance = random.Random(seed)
    files: dict[str, list[Any]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    groups = list(files.values())
    chance.shuffle(groups)
    for group in groups:
        chance.shuffle(group)
    return [item for group in groups for item in group]


def _canary(items: list[Any], name: str) -> Any:
    """A test beside the last one that fails, whatever it is that honest code does around it."""
    import pytest

    module = items[-1].getparent(pytest.Module) if items else None
    if module is None or not hasattr(pytest.Function, "from_parent"):
        return None

    def canary() -> None:
        raise AssertionError("this test has to fail")

    canary.__name__ = canary.__qualname__ = name
    try:
        return pytest.Function.from_parent(module, name=name, callobj=canary)
    except Exception:  # an unusual collector: do without
        return None


def _wanted(nodeid: str, wanted: Any) -> bool:
    """Asked for by its own id, or by that of its file, class or unparametrized function."""
    if nodeid in wanted or nodeid.partition("[")[0] in wanted:
        return True
    parts = nodeid.partition("[")[0].split("::")
    return any("::".join(parts[:count]) in wanted for count in range(1, len(parts)))


def explain(excinfo: Any) -> str:
    """Short and useful: the line that failed, then what was got."""
    here = os.getcwd() + os.sep
    try:
        frames = [entry for entry in excinfo.traceback if str(entry.path).startswith(here)]
        value = f"{excinfo.value}".strip().splitlines() or [""]
    except Exception:  # an exception whose own words fail
        return str(excinfo.type.__name__)
    if not frames:
        return f"{excinfo.type.__name__}: {value[0]}"[:MESSAGE]
    try:
        line = str(frames[-1].statement).strip()
    except Exception:  # no source to show is no reason to lose the verdict
        line = "?"
    if excinfo.type is not AssertionError:
        place = f"{os.path.relpath(str(frames[-1].path))}:{frames[-1].lineno + 1}"
        return f"{excinfo.type.__name__}: {value[0]}\nat {place}: {line}"[:MESSAGE]
    got = value[0]
    if got.startswith("assert ") and " == " in got and line.endswith(got.rpartition(" == ")[2]):
        got = "got " + got[len("assert ") :].rpartition(" == ")[0]
    return f"{line}\n{got}"[:MESSAGE]


def arguments(request: dict[str, Any], words: list[str]) -> list[str]:
    """Pytest's command line: the user's `words`, or else the asked tests' files."""
    own = ["--continue-on-collection-errors", "-p", "no:cacheprovider"]
    for name in SHUFFLERS:
        own += ["-p", "no:" + name]
    if words:
        return own + words
    own += ["-q", "--tb=no"]
    if request["lean"]:
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        for name in UNNEEDED:
            own += ["-p", "no:" + name]
    files = dict.fromkeys(test.partition("::")[0] for test in request["tests"])
    return own + [file for file in files if os.path.exists(file)]


def run(request: dict[str, Any], channel: Any, guard: Any, words: list[str]) -> int:
    """Run pytest; its exit status."""
    given = arguments(request, words)
    if not words and not os.path.exists(given[-1]):
        return 5  # what pytest says when there is nothing to run
    import _pytest.config

    hook: Any = Probe.pytest_runtest_protocol
    _pytest.config.hookimpl(tryfirst=True)(hook)
    status = int(_pytest.config.main(given, [Probe(request, channel, guard)]))
    guard.check_pytest()
    guard.check_unittest()
    return status
