"""Is a task worth running? Gold must pass every test, and the empty patch fail what it should.

Each patch gets a fresh sandbox: the base commit, the patch, the trusted tests put back over it,
then the tests; as often as asked, because a flaky test shows itself only by repeating. Flaky tests
leave the lists, with their rate; tests that hang, want the network, depend on their order or are
slow are named; so is a statement that quotes the fix, and a container that holds the future.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import anyio

from patchgym.sandbox import Flake, PatchError, PatchgymError, Pool, SandboxError, TestReport

from .leaks import future_in, quoted_lines
from .symptoms import Symptom, flaky_tests, symptoms_of
from .task import Task
from .trial import Trial, TrialConfig

ATTEMPTS = 2  # sandboxes to try for one run before a failure of theirs ends the validation

ValidationStatus = Literal["valid", "invalid", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The answer for one task."""

    status: ValidationStatus
    """`unknown`: sandboxes failed, or the repository could not be used; nothing is said of the
    task's tests."""
    reason: str = ""
    """Unless valid: what is wrong and what to do, in one line."""
    task: Task
    """The task, its flaky tests moved out of the lists into `Task.flaky`."""
    flaky: Mapping[str, Flake] = field(default_factory=dict)
    """Tests that came out in more than one way with the same patch; runs of that patch."""
    symptoms: tuple[Symptom, ...] = ()
    """What is odd but does not make the task invalid."""
    seconds: float = 0.0
    """Wall seconds."""

    @property
    def ok(self) -> bool:
        """Gold passes, the empty patch fails."""
        return self.status == "valid"


async def validate(
    task: Task,
    pool: Pool,
    *,
    repeats: int = 1,
    shuffled: bool = False,
    config: TrialConfig | None = None,
) -> Validation:
    """Run the empty and the gold patch `repeats` times each, the gold one `shuffled` once more.

    With one repeat no flaky test can show itself. A failure of infrastructure, or a task that can't
    be used, is a Validation too.
    """
    started = anyio.current_time()
    try:
        found = await _validate(task, pool, repeats, shuffled, config or TrialConfig())
    except PatchgymError as error:
        reason = str(error) if task.id in str(error) else f"{task.id}: {error}"
        status: ValidationStatus = "unknown" if isinstance(error, SandboxError) else "invalid"
        found = Validation(status=status, reason=" ".join(reason.split()), task=task)
    return replace(found, seconds=anyio.current_time() - started)


async def validate_all(
    tasks: Sequence[Task],
    pool: Pool,
    found: Callable[[Task, Validation], None],
    *,
    jobs: int,
    repeats: int = 1,
    shuffled: bool = False,
    config: TrialConfig | None = None,
) -> None:
    """Validate every task, `jobs` at once; `found` is called with each answer as it comes."""
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:  # shared: each worker takes the next one
            answer = await validate(task, pool, repeats=repeats, shuffled=shuffled, config=config)
            found(task, answer)

    async with anyio.create_task_group() as workers:
        for _ in range(jobs):
            workers.start_soon(work)


@dataclass(slots=True)
class _Runs:
    """All reports of one task so far."""

    empty: list[TestReport] = field(default_factory=list)
    gold: list[TestReport] = field(default_factory=list)
    shuffled: TestReport | None = None
    future: str = ""


async def _validate(
    task: Task, pool: Pool, repeats: int, shuffled: bool, config: TrialConfig
) -> Validation:
    trial = await Trial.of(task, pool, config)
    runs, gold = _Runs(), task.gold_patch.encode()
    problem = ""
    for _ in range(repeats):
        runs.empty.append(await _run(trial, b"", runs=runs))
        try:
            runs.gold.append(await _run(trial, gold))
        except PatchError as error:
            problem = f"the gold patch does not apply ({error}): mend gold_patch"
        if problem or runs.gold[-1].timed_out:
            break  # more of it would tell no more
    problem = problem or _empty_problem(task, runs.empty)
    if runs.future:
        problem = f"the container holds the future ({runs.future}): bake the image anew"
    if not problem and shuffled:
        runs.shuffled = await _run(trial, gold, order=1)
    return _conclude(task, runs, problem)


def _conclude(task: Task, runs: _Runs, problem: str) -> Validation:
    flaky = flaky_tests(task, runs.empty, runs.gold)
    kept = _without(task, flaky)
    if not problem and kept is None:
        problem = f"no FAIL_TO_PASS is left without the flaky {', '.join(sorted(flaky)[:3])}"
    problem = problem or _gold_problem(kept or task, runs)
    symptoms = symptoms_of(task, runs.gold, runs.shuffled)
    quoted = quoted_lines(task)
    if quoted:
        detail = f"the statement quotes the fix: {quoted[0]}"
        symptoms = (*symptoms, Symptom(kind="leak", test="", detail=detail))
    return Validation(
        status="invalid" if problem else "valid",
        reason=f"{task.id}: {problem}" if problem else "",
        task=kept or task,
        flaky=flaky,
        symptoms=symptoms,
    )


def _without(task: Task, flaky: Mapping[str, Flake]) -> Task | None:
    """The task with those tests set aside; None when nothing is left to mend."""
    if not flaky:
        return task
    fail_to_pass = tuple(test for test in task.fail_to_pass if test not in flaky)
    if not fail_to_pass:
        return None
    return replace(
        task,
        fail_to_pass=fail_to_pass,
        pass_to_pass=tuple(test for test in task.pass_to_pass if test not in flaky),
        flaky={**task.flaky, **{test: flake.rate for test, flake in flaky.items()}},
    )


async def _run(
    trial: Trial, patch: bytes, *, runs: _Runs | None = None, order: int | None = None
) -> TestReport:
    """A run in a fresh sandbox, and again in another when the sandbox failed."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await _once(trial, patch, runs, order)
        except SandboxError:
            continue
    return await _once(trial, patch, runs, order)


async def _once(trial: Trial, patch: bytes, runs: _Runs | None, order: int | None) -> TestReport:
    async with trial.prepared(patch) as prepared:
        if runs is not None:
            runs.future = runs.future or await future_in(prepared.sandbox)
        return await prepared.run(order=order)


def _empty_problem(task: Task, reports: Sequence[TestReport]) -> str:
    """What the base commit's runs have against the task."""
    report = reports[-1]
    for test in task.fail_to_pass:
        seen = [each.outcomes[test] for each in reports]
        if set(seen) == {"passed"}:
            return (
                f"FAIL_TO_PASS {test} already passes on the base commit: "
                "take it out of fail_to_pass, or name a base commit that has the bug"
            )
        if seen[-1] == "skipped":  # what did not run has not failed
            return f"FAIL_TO_PASS {test} is skipped on the base commit: {_missing(report)}"
    for test in task.pass_to_pass:
        if not any(each.outcomes[test] == "passed" for each in reports):
            return (
                f"PASS_TO_PASS {test} is {report.outcomes[test]} on the base commit"
                f"{_because(report, test)}: take it out of pass_to_pass"
            )
    return ""


def _gold_problem(task: Task, runs: _Runs) -> str:
    """What the gold patch's runs have against the task, whose flaky tests are out of it."""
    for report in runs.gold:
        for test in task.tests:
            outcome = report.outcomes[test]
            if outcome == "not_run":
                return f"{test} is not_run with the gold patch: {_missing(report)}"
            if outcome != "passed":
                return (
                    f"{test} is {outcome} with the gold patch{_because(report, test)}: "
                    "mend gold_patch or the test"
                )
        if not report.consistent:
            return f"the tests pass with the gold patch, but {report.problem}: mend the tests"
    return ""


def _missing(report: TestReport) -> str:
    if report.timed_out:
        return f"the run was stopped after {report.duration:.0f} s: raise the timeout, or name less"
    return "correct its name (pytest --collect-only lists them) or what it needs to run"


def _because(report: TestReport, test: str) -> str:
    message = " ".join(report.messages.get(test, "").split())
    return f" ({message})" if message else ""
