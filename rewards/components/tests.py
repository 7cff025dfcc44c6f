"""The tests component: the share of FAIL_TO_PASS that pass, given that PASS_TO_PASS is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault, Verdict
from patchgym.rewards.component import Component, Measurement, Need, UnknownValue
from patchgym.rewards.scene import Scene


def verdict_of(scene: Scene) -> Verdict:
    """The scene's verdict. Raises UnknownValue when there is none, or none that is known."""
    if scene.verdict is None:
        raise UnknownValue("no verdict was taken")
    if scene.verdict.status == "unknown":
        raise UnknownValue(scene.verdict.detail or f"the verdict is unknown: "
                           f"{scene.verdict.evidence}")  # fmt: skip
    return scene.verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests(Component):
    """1 for a resolved task, a share of it while some tests still fail, 0 when a test is lost."""

    __test__ = False
    needs: ClassVar[frozenset[Need]] = frozenset({"verdict"})
    gate: ClassVar[str] = ""
    required: ClassVar[bool] = True

    def measure(self, scene: Scene) -> Measurement:
        """Share of FAIL_TO_PASS that passed; 0 unless the whole of PASS_TO_PASS passed.

        Flaky tests are out of both. 0 too for an inconsistent run and for tampering.
        """
        verdict, task = verdict_of(scene), scene.task
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
        failing = [test for test in (*asked, *lost) if test not in fixed]
        faults = tuple(
            Fault(message=f"{verdict.outcomes.get(test, 'not_run')}: {test}")
            for test in (failing if verdict.outcomes else ())
        )
        if lost or not asked or verdict.evidence in ("inconsistent", "tampering"):
            return Measurement(value=0.0, evidence=evidence, faults=faults)
        return Measurement(value=len(fixed) / len(asked), evidence=evidence, faults=faults)
