"""Reads a probe's records with suspicion, and finds the asked tests among what it tells."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .report import OUTCOMES, WORST, Outcome, Suspicion, TestRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One run of a test command, as far as it told."""

    tests: Mapping[str, TestRun]
    """By the runner's own id."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids by other names that tests go by."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Files, classes and modules whose tests could not run, and why."""
    problem: str = ""
    """Why this can't be believed; empty when the end was told and the exit code agrees."""
    suspicions: tuple[Suspicion, ...] = ()
    loaded: frozenset[str] | None = None
    """The repository's files whose modules the test process had loaded at its end; None when it
    did not tell."""

    def find(self, test_ids: Sequence[str]) -> dict[str, TestRun]:
        """What became of each asked test; `not_run` for those that nothing is known of."""
        return {asked: self._find(asked) for asked in test_ids}

    def _find(self, asked: str) -> TestRun:
        exact = self.tests.get(asked)
        if exact is not None:
            return exact
        ids = self.names.get(asked) or [name for name in self.tests if covers(asked, name)]
        if not ids and asked.count("[") > asked.count("]"):
            # Published ids end at the first blank; that says enough where all of them agree.
            cut = [name for name in self.tests if name.startswith(asked)]
            ids = cut if len({self.tests[name].outcome for name in cut}) == 1 else []
        found = [self.tests[name] for name in ids]
        for node, message in self.broken.items():
            if covers(node, asked) or covers(asked, node) or _names_in(node, asked):
                found.append(TestRun(outcome="error", message=message))
        if not found:
            return TestRun(outcome="not_run")
        return min(found, key=lambda run: WORST.index(run.outcome))


def _names_in(node: str, asked: str) -> bool:
    """Whether a module or class that broke is in a dotted test id, as unittest names them."""
    return f".{node}." in "." + re.sub(r"[()\s]", ".", asked) + "."


def covers(asked: str, name: str) -> bool:
    """Whether the test `name` is `asked`, or in the file, class or function that it names."""
    ends = ":[" if "/" in asked else ":[."  # dotted names have no folders
    return name == asked or (name.startswith(asked) and name[len(asked)] in ends)


def read_story(
    nonce: str, data: bytes, *, exit_code: int | None, timed_out: bool, lost: bool
) -> Told:
    """A probe's records; `lost`: the report was longer than what is kept of it."""
    story = _Story(nonce)
    for line in data.splitlines():
        story.take(line)
    story.end(timed_out=timed_out)
    return Told(
        tests=story.tests,
        names={name: tuple(ids) for name, ids in story.names.items()},
        broken=story.broken,
        problem="the report is over its limit" if lost else story.problem(exit_code),
        suspicions=tuple(story.suspicions),
        loaded=story.loaded,
    )


class _Story:
    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.foreign = self.count = 0
        self.done: int | None = None
        self.started: str | None = None
        self.tests: dict[str, TestRun] = {}
        self.names: dict[str, dict[str, None]] = {}
        self.broken: dict[str, str] = {}
        self.suspicions: list[Suspicion] = []
        self.loaded: frozenset[str] | None = None

    def take(self, line: bytes) -> None:
        record = _parse(line)
        foreign = record.get("nonce") != self.nonce or record.get("n") != self.count
        if foreign or self.done is not None:
            self.foreign += 1
            return
        self.count += 1
        message = str(record.get("message", ""))
        if "start" in record:
            self.started = str(record["start"])
        elif "broken" in record:
            self.broken[str(record["broken"])] = message
        elif "done" in record:
            self.done = int(record["done"])
        elif isinstance(record.get("loaded"), list):
            self.loaded = frozenset(map(str, record["loaded"]))
        elif "seen" in record:
            self.suspicions.append(_suspicion(record, message))
        elif record.get("outcome") in OUTCOMES:
            self._test(record, message)

    def _test(self, record: Mapping[str, Any], message: str) -> None:
        test, self.started = str(record["test"]), None
        outcome: Outcome = record["outcome"]
        for name in record.get("names", ()):
            self.names.setdefault(str(name), {})[test] = None
        before = self.tests.get(test)
        if before is None or WORST.index(outcome) < WORST.index(before.outcome):
            seconds = float(record.get("seconds", 0.0))
            self.tests[test] = TestRun(outcome=outcome, message=message, seconds=seconds)

    def end(self, *, timed_out: bool) -> None:
        """The test inside which the run ended, if it did."""
        if self.started is not None:
            self.tests[self.started] = (
                TestRun(outcome="timeout", message="the run's time was up during this test")
                if timed_out
                else TestRun(outcome="error", message="the process ended during this test")
            )

    def problem(self, exit_code: int | None) -> str:
        """What does not agree; empty when all does."""
        if self.foreign:
            return f"{self.foreign} lines of the report are not the probe's"
        if self.done is None:
            return f"the test process ended without its last word (exit code {exit_code})"
        if self.done != exit_code:
            return f"the runner told exit code {self.done}, the process ended with {exit_code}"
        return disagreement(exit_code, self.tests.values(), broken=bool(self.broken))


def disagreement(exit_code: int | None, runs: Any, *, broken: bool = False) -> str:
    """Why this exit code does not fit these outcomes; empty when it does."""
    outcomes = [run.outcome for run in runs]
    bad = broken or any(outcome not in ("passed", "skipped") for outcome in outcomes)
    if not outcomes and not broken:
        # 5 is pytest's for "no tests"; other runners call that a success.
        return "" if exit_code in (0, 5) else f"no test ran, and the exit code is {exit_code}"
    if bad == (exit_code == 0):
        told = "a test did not pass" if bad else "every test passed"
        return f"{told}, and the exit code is {exit_code}"
    return ""


def _suspicion(record: Mapping[str, Any], message: str) -> Suspicion:
    path, line = record.get("path"), record.get("line")
    return Suspicion(
        rule=str(record["seen"]),
        message=message,
        path=str(path) if path else None,
        line=line if isinstance(line, int) else None,
        certain=record.get("certain") is True,
    )


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
