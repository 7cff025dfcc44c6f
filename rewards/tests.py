"""The tests component: the share of FAIL_TO_PASS that pass, given that PASS_TO_PASS is kept."""

from __future__ import annotations

from patchgym.datasets.task import Task

from .base import Verdict


class TestsComponent:
    """1 for a resolved task, a share of it while some tests still fail, 0 when a test is lost."""

    __test__ = False
    name = "tests"

    def score(self, task: Task, diff: bytes, verdict: Verdict) -> tuple[float, dict[str, object]]:
        """Share of FAIL_TO_PASS that passed; 0 unless the whole of PASS_TO_PASS passed.

        Flaky tests are out of both. 0 too for an inconsistent run and for tampering.
        """
        aside = verdict.flaky
        asked = [test for test in task.fail_to_pass if test not in aside]
        kept = [test for test in task.pass_to_pass if test not in aside]
        fixed = [test for test in asked if verdict.outcomes.get(test) == "passed"]
        lost = [test for test in kept if verdict.outcomes.get(test, "not_run") != "passed"]
        evidence: dict[str, object] = {
            "fixed": fixed,
            "fail_to_pass": len(asked),
            "lost": lost if verdict.outcomes else [],
            "flaky": sorted(aside),
            "verdict": verdict.evidence,
        }
        if lost or not asked or verdict.evidence in ("inconsistent", "tampering"):
            return 0.0, evidence
        return len(fixed) / len(asked), evidence
