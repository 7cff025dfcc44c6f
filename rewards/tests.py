"""The tests component: the share of FAIL_TO_PASS that pass, given that PASS_TO_PASS is kept."""

from __future__ import annotations

from patchgym.datasets.task import Task

from .base import Verdict


class TestsComponent:
    """1 for a resolved task, a share of it while some tests still fail, 0 when a test is lost."""

    __test__ = False
    name = "tests"

    def score(self, task: Task, diff: bytes, verdict: Verdict) -> tuple[float, dict[str, object]]:
        """Share of FAIL_TO_PASS that passed; 0 unless the whole of PASS_TO_PASS passed."""
        fixed = [t for t in task.fail_to_pass if verdict.outcomes.get(t) == "passed"]
        lost = [t for t in task.pass_to_pass if verdict.outcomes.get(t, "not_run") != "passed"]
        evidence: dict[str, object] = {
            "fixed": fixed,
            "fail_to_pass": len(task.fail_to_pass),
            "lost": lost if verdict.outcomes else [],
            "verdict": verdict.evidence,
        }
        if lost or not task.fail_to_pass or verdict.evidence == "inconsistent":
            return 0.0, evidence
        return len(fixed) / len(task.fail_to_pass), evidence
