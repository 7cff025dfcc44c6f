"""Runs inside a sandbox: pytest on the asked tests, telling the host what became of each.

Started as `python3 -c <this file>`; the request comes on stdin, one JSON object:
    nonce       str, repeated in every line of the report
    tests       list of node ids
    lean        bool, leave out plugins that plain tests don't need
    seconds     float or null, limit of each test
It writes JSON lines to the descriptor named by PATCHGYM_REPORT_FD:
    {nonce, "start": id} · {nonce, "test": id, "outcome", "message"} ·
    {nonce, "broken": node id of a file that could not be collected, "message"} ·
    {nonce, "done": exit status of pytest}
Standard library and pytest only, Python 3.7 or newer; it must not import anything of patchgym.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any

UNNEEDED = (
    *("cacheprovider", "doctest", "junitxml", "pastebin", "nose", "setuponly", "setupplan"),
    *("stepwise", "faulthandler", "legacypath", "threadexception"),
)
MESSAGE = 400  # characters


class TestTimeout(BaseException):
    """One test's own limit; not an Exception, so that tests don't catch it by accident."""

    __test__ = False


def _alarm(number: int, where: object) -> None:
    raise TestTimeout("the test's time was up")


class Probe:
    """A pytest plugin."""

    def __init__(self, request: dict[str, Any], sink: int) -> None:
        self.nonce, self.seconds = request["nonce"], request["seconds"]
        self.asked, self.sink = request["tests"], sink
        self.phases: dict[str, tuple[str, str]] = {}

    def tell(self, **record: object) -> None:
        data = memoryview(json.dumps({"nonce": self.nonce, **record}).encode() + b"\n")
        while data:
            data = data[os.write(self.sink, data) :]

    def pytest_collection(self) -> None:
        gc.enable()  # before any code under test

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            text = str(report.longrepr).strip().splitlines()
            self.tell(broken=report.nodeid, message="\n".join(text[-2:])[:MESSAGE])

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        wanted = set(self.asked)
        keep = [item for item in items if _wanted(item.nodeid, wanted)]
        if len(keep) < len(items):
            gone = [item for item in items if not _wanted(item.nodeid, wanted)]
            config.hook.pytest_deselected(items=gone)
            items[:] = keep

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.phases.clear()
        self.tell(start=nodeid)
        if self.seconds:
            signal.signal(signal.SIGALRM, _alarm)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        kinds = {name: kind for name, (kind, _) in self.phases.items()}
        bad = [name for name in ("call", "setup", "teardown") if kinds.get(name) != "passed"]
        if not bad:
            self.tell(test=nodeid, outcome="passed", message="")
            return
        where = next((name for name in ("setup", "call", "teardown") if name in bad), "call")
        kind, message = self.phases.get(where, ("error", "it did not run to its end"))
        self.tell(test=nodeid, outcome=kind, message=message)

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
        """The last word on expected failures is pytest's own."""
        if hasattr(report, "wasxfail"):
            self.phases[report.when] = ("passed" if report.passed else "skipped", "")
        elif report.failed and self.phases[report.when][0] == "passed":
            text = str(report.longrepr)[:MESSAGE]
            self.phases[report.when] = ("failed" if report.when == "call" else "error", text)


def _wanted(nodeid: str, wanted: set[str]) -> bool:
    """Asked for by its own id, or by that of its file, class or unparametrized function."""
    if nodeid in wanted or nodeid.partition("[")[0] in wanted:
        return True
    parts = nodeid.partition("[")[0].split("::")
    return any("::".join(parts[:count]) in wanted for count in range(1, len(parts)))


def explain(excinfo: Any) -> str:
    """Short and useful: the line that failed, then what was got."""
    here = os.getcwd() + os.sep
    frames = [entry for entry in excinfo.traceback if str(entry.path).startswith(here)]
    value = f"{excinfo.value}".strip().splitlines() or [""]
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


def main() -> None:
    gc.disable()  # importing pytest makes much and drops little
    request = json.loads(sys.stdin.buffer.read())
    sink = int(os.environ.pop("PATCHGYM_REPORT_FD"))
    os.set_inheritable(sink, False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    tests = request["tests"]
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    arguments = ["-q", "--continue-on-collection-errors", "--tb=no", "-p", "no:cacheprovider"]
    if request["lean"]:
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        for name in UNNEEDED:
            arguments += ["-p", "no:" + name]
    arguments += [file for file in files if os.path.exists(file)]
    probe = Probe(request, sink)
    status = 5  # what pytest says when there is nothing to run
    if any(os.path.exists(file) for file in files):
        import _pytest.config

        status = int(_pytest.config.main(arguments, [probe]))
    probe.tell(done=status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads that a test left behind must not hold the verdict up


if __name__ == "__main__":
    main()
