"""The tampering component: what the diff does to tests and to how it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault
from patchgym.rewards.component import Component, Measurement, Need
from patchgym.rewards.scene import Scene

from .tests import verdict_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tampering(Component):
    """Penalty: 1 for what disqualifies, `suspicion` for what is only named.

    Whatever its weight, a diff that disqualifies has an unresolved verdict and `tests` 0.
    """

    suspicion: float = 0.0
    """Honest patches do such things too: whoever adds a test edits a test file."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"verdict"})
    gate: ClassVar[str] = ""
    required: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.suspicion <= 1:
            raise ValueError(f"suspicion is {self.suspicion}: it must be 0 to 1")

    def measure(self, scene: Scene) -> Measurement:
        """By the verdict's findings; the rules are in docs/tampering.md."""
        found = sorted(verdict_of(scene).tampering, key=lambda each: not each.disqualifies)
        value = 0.0
        if found:
            value = 1.0 if found[0].disqualifies else self.suspicion
        return Measurement(
            value=value,
            evidence={"rules": sorted({each.rule for each in found})},
            faults=tuple(
                Fault(message=f"{each.rule}: {each.message}", path=each.path, line=each.line)
                for each in found
            ),
        )
