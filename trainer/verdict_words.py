"""What a person should know of a verdict besides its outcomes."""

from __future__ import annotations

from collections.abc import Iterator

from patchgym.rewards import Verdict


def remarks(verdict: Verdict) -> Iterator[str]:
    """One line for each finding, each file that was put back, and each flaky test."""
    for finding in verdict.tampering:
        weight = "tampering" if finding.disqualifies else "noted"
        place = finding.path + (f":{finding.line}" if finding.line else "")
        yield f"{weight}: {finding.rule}: {place}: {finding.message}"
    for path in verdict.restored:
        yield f"put back: {path}"
    for test, flake in verdict.flaky.items():
        low, high = flake.interval
        yield f"flaky: {test}: {flake.failures} of {flake.runs} runs ({low:.0%} to {high:.0%})"
