"""`run_tests`: the task's visible tests, or those that are named, told without times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio.to_thread

from patchgym.agent.action import Observation
from patchgym.datasets.repository import materialize, patched_paths, read_files
from patchgym.datasets.task import Task
from patchgym.datasets.trial import is_runnable
from patchgym.sandbox import Outcome, Sandbox, TestReport, run_tests
from patchgym.sandbox.testing import describe

from .text import cut, readable
from .view import told_off
from .visible import visible_tests

# What test programs print of time, and our own folders: a replay would say something else.
VARYING = re.compile(
    r" \(\d+(?:\.\d+)? s\)(?=\.)"
    r"|\bin \d+(?:\.\d+)?s\b(?: \(\d+:\d\d:\d\d\))?"
    r"|/tmp/patchgym-[0-9a-f]+"
)
SAME: Mapping[str, str] = {"/": "/tmp/patchgym", "i": "in some time", " ": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleTests:
    """What may be run of a task's tests."""

    tests: tuple[str, ...]
    """Ids."""
    files: tuple[str, ...]
    """Runnable test files that are there at the base commit."""
    partly: bool
    """There are hidden tests beside them."""


async def find_visible(task: Task, repositories: Path) -> VisibleTests:
    """Read the base commit's test files on this machine. Raises TaskError."""

    def read() -> VisibleTests:
        paths = dict.fromkeys((*task.test_files, *sorted(patched_paths(task.test_patch))))
        if task.files is not None:
            base = {path: _encoded(task.files.get(path)) for path in paths}
        else:
            folder = materialize(task, repositories)
            base = dict(read_files(folder, task.base_commit, tuple(paths)))
        return VisibleTests(
            tests=visible_tests(task, base),
            files=tuple(p for p in task.test_files if base[p] is not None and is_runnable(p)),
            partly=bool(task.test_patch.strip()),
        )

    return await anyio.to_thread.run_sync(read)


async def observe_tests(
    sandbox: Sandbox,
    task: Task,
    visible: VisibleTests,
    named: Sequence[str] | None,
    *,
    seconds: float,
    characters: int,
) -> Observation:
    """Run the visible tests, or those that are `named`, and say what became of each."""
    tests = visible.tests if named is None else tuple(dict.fromkeys(named))
    odd = next((test for test in tests if not test.strip() or test.startswith("-")), None)
    if odd is not None:
        return told_off(f"{odd!r} is no test: name files, or ids such as tests/test_a.py::test_x.")
    if not tests:
        return told_off(
            "There are no tests to run without a name: name test files or ids in `tests`."
        )
    environment = task.environment
    report = await run_tests(
        sandbox,
        test_ids=tests,
        timeout=seconds,
        lean=task.files is not None,
        command=environment.command if environment else None,
        test_files=visible.files if named is None else (),
    )
    if named is None and visible.partly:
        report = _without_absent(report)
    elif named is not None:
        report = _file_by_file(report)
    return _observation(report, characters)


def _observation(report: TestReport, characters: int) -> Observation:
    # Two runs of the same tests have to read the same: see the module.
    plain = replace(report, killed=0, output=_steady(report.output))
    plain = replace(plain, messages={test: _steady(m) for test, m in report.messages.items()})
    text, dropped = cut(_steady(describe(plain, limit=characters)), characters)
    return Observation(
        kind="tests",
        text=readable(text.encode("utf-8", "surrogatepass")),
        done=False,
        outcomes=report.outcomes,
        messages=report.messages,
        timed_out=report.timed_out,
        dropped=dropped,
    )


def _steady(text: str) -> str:
    return VARYING.sub(lambda found: SAME[found[0][0]], text)


def _without_absent(report: TestReport) -> TestReport:
    """Without tests that were not found: their names may be those of hidden ones."""
    found = {test: outcome for test, outcome in report.outcomes.items() if outcome != "not_run"}
    return replace(report, outcomes=found)


def _file_by_file(report: TestReport) -> TestReport:
    """With the tests of a file, class or function in its place, where they are told."""
    outcomes: dict[str, Outcome] = {}
    messages = dict(report.messages)
    for asked, outcome in report.outcomes.items():
        inside: dict[str, Outcome] = {
            test: each
            for test, each in report.others.items()
            if test.startswith((f"{asked}::", f"{asked}["))
        }
        if not inside:
            outcomes[asked] = outcome
            continue
        outcomes |= inside
        worst = next((test for test, each in inside.items() if each == outcome), None)
        if asked in messages and worst is not None:
            messages.setdefault(worst, messages[asked])  # a report gives the first such one's
    if outcomes and report.others and set(outcomes.values()) == {"not_run"}:
        outcomes = dict(report.others)  # other runners' ids don't begin with their file's
    return replace(report, outcomes=outcomes, messages=messages)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
