"""A verdict's log: all that a person needs to believe it, or to find out why it is what it is."""

from __future__ import annotations

from collections.abc import Iterator

from patchgym.datasets.task import Task
from patchgym.rewards.base import Verdict

_PATCH_LIMIT = 200_000  # bytes of the patch that go into a log


def log_text(task: Task, patch: bytes, model: str, verdict: Verdict, repeat: int) -> str:
    """The text; `repeat` counts from 0."""
    return "\n".join([*_head(task, patch, model, verdict, repeat), *_body(task, patch, verdict)])


def _head(task: Task, patch: bytes, model: str, verdict: Verdict, repeat: int) -> Iterator[str]:
    yield f"task      {task.id}"
    yield f"model     {model or '-'}"
    yield f"repeat    {repeat + 1}"
    yield f"status    {verdict.status} ({verdict.evidence})"
    if verdict.detail:
        yield f"detail    {verdict.detail}"
    yield f"seconds   {verdict.seconds:.2f}"
    for phase, seconds in verdict.timings.items():
        yield f"  {phase:<10} {seconds:8.2f}"
    yield f"patch     {len(patch)} bytes, applied: {verdict.rung or 'no'}"
    yield f"exit code {'-' if verdict.exit_code is None else verdict.exit_code}"


def _body(task: Task, patch: bytes, verdict: Verdict) -> Iterator[str]:
    if verdict.restored:
        yield from ("", "trusted files put back:", *(f"  {path}" for path in verdict.restored))
    if verdict.tampering:
        yield from ("", "tampering:")
        for found in verdict.tampering:
            weight = "disqualifies" if found.disqualifies else "named only"
            place = found.path if found.line is None else f"{found.path}:{found.line}"
            yield f"  {found.rule} ({weight}) {place}: {found.message}"
    for test, flake in verdict.flaky.items():
        yield f"flaky     {test}: failed in {flake.failures} of {flake.runs} runs"
    for name, tests in (("FAIL_TO_PASS", task.fail_to_pass), ("PASS_TO_PASS", task.pass_to_pass)):
        yield from ("", f"{name}:")
        for test in tests:
            yield f"  {verdict.outcomes.get(test, 'not run'):<8} {test}"
            for line in verdict.messages.get(test, "").splitlines():
                yield f"           {line}"
    yield from ("", "output:", verdict.log or "(none)", "", "patch:")
    yield patch[:_PATCH_LIMIT].decode("utf-8", "backslashreplace")
    if len(patch) > _PATCH_LIMIT:
        yield f"({len(patch) - _PATCH_LIMIT} bytes more)"
