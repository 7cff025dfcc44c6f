"""Runs cases, each in a process of its own with a deadline. Imports no JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

from .cases import Case

REMATERIALIZED = "Involuntary full rematerialization"
"""What XLA logs when it gathers a whole array, knowing no other way from one layout to another."""


class CaseFailed(Exception):
    """A case has no report; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a case's process said."""

    report: dict[str, Any]
    """`check.Report`, as JSON has it."""
    complaints: list[str] = field(default_factory=list)
    """Lines of the compiler's log that must not be there."""


def run_case(case: Case, deadline: float) -> Outcome:
    """Compile `case` in a process that has `deadline` seconds. CaseFailed when it has no report."""
    with (
        tempfile.TemporaryDirectory(prefix="patchgym-aot-") as folder,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
    ):
        try:
            done = subprocess.run(
                [sys.executable, "-m", "patchgym.trainer.aot"],
                input=json.dumps(case.plain()),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=deadline,
                # What a process that is killed at its deadline leaves behind goes with the folder.
                env={**os.environ, "TMPDIR": folder},
            )
        except subprocess.TimeoutExpired:
            raise CaseFailed(
                f"not done after {deadline:.0f} s; give it more with --deadline"
            ) from None
        log.seek(0)
        lines = log.read().splitlines()
    if done.returncode:
        raise CaseFailed(_reason(lines, done.returncode))
    return Outcome(
        report=json.loads(done.stdout.splitlines()[-1]),
        complaints=[line.strip() for line in lines if REMATERIALIZED.lower() in line.lower()],
    )


def _reason(lines: list[str], code: int) -> str:
    """The line that says most about a process that ended with `code`."""
    for line in reversed(lines):
        if line.startswith("aot: ") or "RESOURCE_EXHAUSTED" in line:
            return line.removeprefix("aot: ")
    last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return f"ended with {code}: {last.strip()}"
