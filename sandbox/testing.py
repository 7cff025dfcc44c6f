"""Runs tests in a sandbox and says what became of each one that was asked for.

The outcomes come from a pytest plugin of ours over a descriptor of its own, in lines that carry a
nonce of this run; what the tests print plays no part. A test that no line vouches for did not pass.
Code under test runs in the same process as the plugin, so a determined forger could still find the
nonce: `consistent` says that the exit code agrees and that no foreign line was seen.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .container import Sandbox

Outcome = Literal["passed", "failed", "error", "skipped", "timeout", "flaky", "not_run"]
OUTCOMES: tuple[Outcome, ...] = (
    "passed", "failed", "error", "skipped", "timeout", "flaky", "not_run",
)  # fmt: skip
WORST: tuple[Outcome, ...] = ("not_run", "timeout", "error", "failed", "flaky", "skipped", "passed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """What became of every test that was asked for."""

    __test__ = False  # not a test, whatever its name says to pytest

    outcomes: Mapping[str, Outcome]
    """By test id; every asked id is there."""
    messages: Mapping[str, str]
    """By test id, for tests that did not pass: the failing line and the values, short."""
    exit_code: int | None
    """pytest's; None when it was killed."""
    timed_out: bool
    """The whole run's time was up."""
    duration: float
    """Wall-clock seconds."""
    cpu_seconds: float
    """CPU seconds of the sandbox during the run."""
    consistent: bool
    """The run came to its end, and its exit code agrees with the outcomes."""
    output: str
    """What was printed, shortened; for people, never for verdicts."""

    def all_passed(self, test_ids: Sequence[str]) -> bool:
        """Every one of these passed, in a consistent run."""
        return self.consistent and all(self.outcomes.get(each) == "passed" for each in test_ids)


async def run_tests(
    sandbox: Sandbox,
    *,
    test_ids: Sequence[str],
    timeout: float,
    per_test_timeout: float | None = None,
    lean: bool = True,
) -> TestReport:
    """Run pytest in the workdir on `test_ids` (node ids; that of a file or class means all in it).

    `timeout` and `per_test_timeout` in seconds. `lean` leaves out third-party pytest plugins and
    the built-in ones that plain tests don't need (doctest, junitxml, ...): much cheaper; turn it
    off for projects that rely on plugins. A collection error is `error` for the tests of that
    file; a test that was not found, or not reached, is `not_run`.
    """
    nonce = secrets.token_hex(16)
    request = {
        "nonce": nonce, "tests": list(test_ids), "lean": lean, "seconds": per_test_timeout,
    }  # fmt: skip
    result = await sandbox.run(
        ["python3", "-c", _probe_source()],
        timeout=timeout,
        stdin=json.dumps(request).encode(),
        report=True,
    )
    story = _Story(nonce, result.report)
    outcomes, messages = story.verdicts(test_ids, timed_out=result.timed_out)
    return TestReport(
        outcomes=outcomes,
        messages=messages,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        duration=result.duration,
        cpu_seconds=result.cpu_seconds,
        consistent=result.exit_code is not None and story.agrees(result.exit_code),
        output=result.stdout.text() + result.stderr.text(),
    )


@cache
def _probe_source() -> str:
    return (files("patchgym.sandbox") / "probe.py").read_text("utf-8")


class _Story:
    """The report's lines, read with suspicion."""

    def __init__(self, nonce: str, report: bytes) -> None:
        self.foreign = 0
        self.done: int | None = None
        self.started: str | None = None
        self.tests: dict[str, tuple[Outcome, str]] = {}
        self.broken: dict[str, str] = {}
        for line in report.splitlines():
            record = _parse(line)
            if record.get("nonce") != nonce or self.done is not None:
                self.foreign += 1
            else:
                self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        message = str(record.get("message", ""))
        if "start" in record:
            self.started = str(record["start"])
        elif "broken" in record:
            self.broken[str(record["broken"])] = message
        elif "done" in record:
            self.done = int(record["done"])
        elif record.get("outcome") in OUTCOMES:
            test, self.started = str(record["test"]), None
            outcome: Outcome = record["outcome"]
            before = self.tests.get(test)
            if before is None or WORST.index(outcome) < WORST.index(before[0]):
                self.tests[test] = (outcome, message)

    def agrees(self, exit_code: int) -> bool:
        """Whether the end was told, nothing foreign was, and the exit code fits the outcomes."""
        bad = bool(self.broken) or any(
            outcome not in ("passed", "skipped") for outcome, _ in self.tests.values()
        )
        expected = 1 if bad else 0 if self.tests else 5
        return not self.foreign and self.done == exit_code == expected

    def verdicts(
        self, test_ids: Sequence[str], *, timed_out: bool
    ) -> tuple[dict[str, Outcome], dict[str, str]]:
        """Outcome and message of every asked id."""
        told = dict(self.tests)
        if self.started is not None:  # the run ended inside this test
            ending: tuple[Outcome, str] = (
                ("timeout", "the run's time was up during this test")
                if timed_out
                else ("error", "the process ended during this test")
            )
            told[self.started] = ending
        outcomes: dict[str, Outcome] = {}
        messages: dict[str, str] = {}
        for asked in test_ids:
            outcome, message = self._verdict(asked, told)
            outcomes[asked] = outcome
            if message:
                messages[asked] = message
        return outcomes, messages

    def _verdict(self, asked: str, told: Mapping[str, tuple[Outcome, str]]) -> tuple[Outcome, str]:
        found = [told[name] for name in told if _covers(asked, name)]
        for node, message in self.broken.items():
            if _covers(node, asked) or _covers(asked, node):
                found.append(("error", message))
        if not found:
            return "not_run", ""
        return min(found, key=lambda one: WORST.index(one[0]))


def _covers(asked: str, name: str) -> bool:
    return name == asked or (name.startswith(asked) and name[len(asked)] in ":[")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}
