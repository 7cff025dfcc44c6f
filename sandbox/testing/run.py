"""Runs tests in a sandbox and says what became of each one that was asked for.

pytest, unittest (and what builds on it, such as Django's runner) and SymPy's runner report through
hooks of ours, over a descriptor apart, in records with a nonce and a running number; what the tests
print plays no part. Other runners write JUnit XML. Where there is only a log, the report says so.
A test that nothing vouches for did not pass, and the exit code has to agree.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from patchgym.sandbox import telemetry
from patchgym.sandbox.result import CommandResult

from .clean import CleanState
from .command import TestCommand
from .junit import LIMIT, ReportError, merge, read_junit
from .launch import fill, with_probe
from .probe import BOOT, request_bytes
from .report import Outcome, Suspicion, TestEvidence, TestReport, TestRun, settle
from .story import Told, disagreement, read_story

if TYPE_CHECKING:
    from patchgym.sandbox.container import Sandbox

LOG_LIMIT = 16 << 20  # bytes of a log that is read for outcomes
QUICK = 30.0  # seconds for commands of our own
NO_RERUN: tuple[Outcome, ...] = ("passed", "skipped")


async def run_tests(
    sandbox: Sandbox,
    *,
    test_ids: Sequence[str],
    timeout: float,
    per_test_timeout: float | None = None,
    lean: bool = True,
    command: TestCommand | None = None,
    test_files: Sequence[str] = (),
    reruns: int = 0,
    order: int | None = None,
) -> TestReport:
    """Run `test_ids` in the workdir by `command`; by pytest when None.

    For pytest, ids are node ids; that of a file or class means all in it. Other runners' ids are
    those of their reports, or a name that their logs use. A test in a file that could not be
    loaded is `error`; one that was not found, or not reached, is `not_run`.

    `timeout` (seconds) is for one run of the command, `per_test_timeout` for each test of pytest,
    unittest and SymPy. `lean` leaves out third-party pytest plugins and the built-in ones that
    plain tests don't need: much cheaper; turn it off for projects that rely on plugins.

    Tests that did not pass are run again up to `reruns` times, each time in a new process and with
    the work tree, /tmp and the home folder as they were; a test that then passes is `flaky`.
    `test_files` fills a command's placeholder; by default the files that the ids name. `order` is
    the seed of a shuffle of pytest's tests, file by file; other runners keep their order.

    Raises SandboxUsageError when the command can't be run under the probe.
    """
    asked = _Asked(
        command=command or TestCommand(),
        test_ids=tuple(test_ids),
        files=tuple(test_files) or _files(test_ids),
        timeout=timeout,
        per_test=per_test_timeout,
        lean=lean,
        order=order,
    )
    with telemetry.test_run(len(asked.test_ids), reruns):
        report = await _run_and_rerun(sandbox, asked, reruns)
    telemetry.tests_ended(report.outcomes.values())
    return report


async def _run_and_rerun(sandbox: Sandbox, asked: _Asked, reruns: int) -> TestReport:
    clean = await CleanState.take(sandbox) if reruns else None
    first = await _once(sandbox, asked)
    runs = {test: [run] for test, run in first.told.find(asked.test_ids).items()}
    results, suspicions = [first.result], dict.fromkeys(first.told.suspicions)
    for _ in range(reruns):
        again = [test for test, tried in runs.items() if not _settled(tried)]
        if not again or clean is None:
            break
        with telemetry.reset(sandbox.name):
            await clean.restore(sandbox)
        more = await _once(sandbox, asked.only(again, first.told))
        for test, run in more.told.find(again).items():
            # A run that can't be believed shows nothing, least of all that a test passes.
            believed = run.outcome != "passed" or not more.told.problem
            runs[test].append(run if believed else TestRun(outcome="error", message="not believed"))
        results.append(more.result)
        suspicions |= dict.fromkeys(more.told.suspicions)
    return _report(first, runs, results, tuple(suspicions))


def _settled(runs: Sequence[TestRun]) -> bool:
    return any(run.outcome in NO_RERUN for run in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One run to make."""

    command: TestCommand
    test_ids: tuple[str, ...]
    files: tuple[str, ...]
    timeout: float
    per_test: float | None
    lean: bool
    order: int | None = None

    def only(self, tests: Sequence[str], told: Told) -> _Asked:
        """The same for some of the tests, and for their files where those are known."""
        owners = {file for test in tests for file in _owners(test, told, self.files)}
        files = tuple(file for file in self.files if file in owners) or self.files
        return replace(self, test_ids=tuple(tests), files=files)


def _owners(test: str, told: Told, files: Sequence[str]) -> set[str]:
    """The files that a test may be in; all of them when nothing is known."""
    ids = told.names.get(test, (test,))
    owners = {name.partition("::")[0] for name in ids} & set(files)
    return owners or set(files)


def _files(test_ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(test.partition("::")[0] for test in test_ids))


@dataclass(frozen=True, slots=True)
class _Run:
    result: CommandResult
    told: Told
    evidence: TestEvidence


async def _once(sandbox: Sandbox, asked: _Asked) -> _Run:
    kind = asked.command.kind
    if kind == "junit":
        return await _run_junit(sandbox, asked)
    if kind.startswith("log:"):
        return await _run_log(sandbox, asked, kind.removeprefix("log:"))
    return await _run_probe(sandbox, asked)


async def _run_probe(sandbox: Sandbox, asked: _Asked) -> _Run:
    nonce = secrets.token_hex(16)
    request = {
        "nonce": nonce, "kind": asked.command.kind, "tests": list(asked.test_ids),
        "lean": asked.lean, "seconds": asked.per_test, "pick": not asked.command.command,
        "cpus": max(1, math.ceil(sandbox.spec.cpus)), "order": asked.order,
    }  # fmt: skip
    words: str | list[str] = ["python3", "-c", BOOT]
    if asked.command.command:
        words = with_probe(fill(asked.command.command, files=asked.files, ids=asked.test_ids))
    result = await sandbox.run(
        words,
        timeout=asked.timeout,
        stdin=request_bytes(request),
        environment={**asked.command.variables, "PATCHGYM_PROBE": BOOT},
        report=True,
    )
    told = read_story(
        nonce,
        result.report,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        lost="report" in result.limits_hit,
    )
    return _Run(result, told, "report")


async def _run_junit(sandbox: Sandbox, asked: _Asked) -> _Run:
    folder = f"/tmp/patchgym-{secrets.token_hex(16)}"
    report = f"{folder}/report.xml"
    words = fill(asked.command.command, files=asked.files, ids=asked.test_ids, report=report)
    await sandbox.run(["mkdir", "-m", "700", folder], timeout=QUICK, cwd="/")
    result = await sandbox.run(words, timeout=asked.timeout, environment=asked.command.variables)
    tests: dict[str, TestRun] = {}
    names: Mapping[str, tuple[str, ...]] = {}
    try:
        tests, names = read_junit(await _collect(sandbox, folder))
        problem = disagreement(result.exit_code, tests.values())
    except ReportError as error:
        problem = str(error)
    return _Run(result, Told(tests=tests, names=names, problem=problem), "junit")


async def _collect(sandbox: Sandbox, folder: str) -> bytes:
    """All XML below the folder, as one document. Raises ReportError."""
    found = await sandbox.run(
        ["find", folder, "-type", "f", "-name", "*.xml", "-print0"], timeout=QUICK, cwd="/"
    )
    paths = [path for path in found.stdout.head.split(b"\0") if path]
    if not paths:
        raise ReportError("the test command wrote no report")
    pieces: list[bytes] = []
    room = LIMIT
    for path in paths:
        read = await sandbox.run(
            ["head", "-c", str(room + 1), path.decode("utf-8", "surrogateescape")],
            timeout=QUICK, cwd="/", output_limit=2 * (LIMIT + 1),
        )  # fmt: skip
        data = read.stdout.head + read.stdout.tail
        room -= len(data)
        if room < 0:
            raise ReportError(f"the JUnit report is over {LIMIT >> 20} MiB")
        pieces.append(data)
    return merge(pieces)


async def _run_log(sandbox: Sandbox, asked: _Asked, parser: str) -> _Run:
    from .logs import parse

    nonce = secrets.token_hex(16)
    words = fill(asked.command.command, files=asked.files, ids=asked.test_ids)
    script = f"exec 2>&1\n(\n{words}\n)\ncode=$?\nprintf '\\n%s %s\\n' {nonce} $code\nexit $code\n"
    result = await sandbox.run(
        ["sh", "-c", script] if "bash" not in words else ["bash", "-c", script],
        timeout=asked.timeout,
        environment=asked.command.variables,
        output_limit=LOG_LIMIT,
    )
    text, found, end = result.stdout.text().rpartition(f"\n{nonce} ")
    runs = {name: TestRun(outcome=outcome) for name, outcome in parse(parser, text).items()}
    if not found:
        problem = "the log does not reach its end"
    elif result.stdout.dropped:
        problem = f"the log is over {LOG_LIMIT >> 20} MiB"
    elif end.strip() != str(result.exit_code):
        problem = f"the log ends with exit code {end.strip()}, the process with {result.exit_code}"
    else:
        problem = disagreement(result.exit_code, runs.values())
    return _Run(result, Told(tests=runs, problem=problem), "log")


def _report(
    first: _Run,
    runs: Mapping[str, Sequence[TestRun]],
    results: Sequence[CommandResult],
    suspicions: tuple[Suspicion, ...],
) -> TestReport:
    outcomes: dict[str, Outcome] = {test: settle(tried) for test, tried in runs.items()}
    messages = {
        test: run.message
        for test, tried in runs.items()
        for run in [next((one for one in tried if one.message), None)]
        if run is not None
    }
    asked = set(outcomes)
    known = {name for test in asked for name in first.told.names.get(test, (test,))}
    result = first.result
    return TestReport(
        outcomes=outcomes,
        messages=messages,
        runs={test: tuple(tried) for test, tried in runs.items()},
        evidence=first.evidence,
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        duration=sum(each.duration for each in results),
        cpu_seconds=sum(each.cpu_seconds for each in results),
        consistent=not first.told.problem and not result.timed_out,
        problem="the run's time was up" if result.timed_out else first.told.problem,
        suspicions=suspicions,
        loaded=first.told.loaded,
        others={
            name: run.outcome
            for name, run in first.told.tests.items()
            if name not in asked and name not in known
        },
        killed=sum(each.killed for each in results),
        oom_killed=any(each.oom_killed for each in results),
        output=_printed(result),
    )


def _printed(result: CommandResult) -> str:
    text = result.stdout.text() + result.stderr.text()
    return text if len(text) <= 1 << 17 else text[: 1 << 16] + "\n[...]\n" + text[-(1 << 16) :]
