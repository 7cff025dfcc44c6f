"""The regressions component: tests that passed before the diff and do not any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault
from patchgym.rewards.component import Component, Measurement, Need
from patchgym.rewards.scene import Scene

from .tests import verdict_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Regressions(Component):
    """Penalty: the share of PASS_TO_PASS that is lost, flaky tests aside; any loss is at least
    `least`."""

    least: float = 0.2
    """So that one lost test of a thousand is felt."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"verdict"})
    gate: ClassVar[str] = ""
    required: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.least <= 1:
            raise ValueError(f"least is {self.least}: it must be 0 to 1")

    def measure(self, scene: Scene) -> Measurement:
        """0 where no test ran, such as for an empty patch: nothing was seen to be lost."""
        verdict = verdict_of(scene)
        kept = [test for test in scene.task.pass_to_pass if test not in verdict.flaky]
        lost = [
            test
            for test in kept
            if verdict.outcomes and verdict.outcomes.get(test, "not_run") != "passed"
        ]
        value = max(self.least, len(lost) / len(kept)) if lost else 0.0
        evidence = {"lost": lost, "pass_to_pass": len(kept), "flaky": sorted(verdict.flaky)}
        faults = tuple(Fault(message=f"{verdict.outcomes.get(t, 'not_run')}: {t}") for t in lost)
        return Measurement(value=value, evidence=evidence, faults=faults)
