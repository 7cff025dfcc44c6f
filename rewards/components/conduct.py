"""Components about how a rollout went about it: its turns, and answers in no known format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.component import Component, Measurement, Need, UnknownValue
from patchgym.rewards.scene import Conduct, Scene


def conduct_of(scene: Scene) -> Conduct:
    """How the rollout went. Raises UnknownValue for a patch that no rollout made."""
    if scene.conduct is None:
        raise UnknownValue("no rollout made this patch, so there are no turns to look at")
    return scene.conduct


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns(Component):
    """Penalty: `1 - exp(-excess / scale)` of the turns past `free`."""

    free: int = 20
    """Turns that cost nothing."""
    scale: float = 20.0
    """Turns past `free` at which the value reaches 1 - 1/e."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"conduct"})

    def __post_init__(self) -> None:
        if self.free < 0:
            raise ValueError(f"free is {self.free}: it must be 0 or more turns")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale is {self.scale}: it must be above 0 turns")

    def measure(self, scene: Scene) -> Measurement:
        """The value. Raises UnknownValue without a rollout."""
        conduct = conduct_of(scene)
        excess = max(0, conduct.turns - self.free)
        return Measurement(
            value=1.0 - math.exp(-excess / self.scale),
            evidence={
                "turns": conduct.turns,
                "sampled_tokens": conduct.sampled_tokens,
                "stop_reason": conduct.stop_reason,
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatErrors(Component):
    """Penalty: the share of turns that held no action that could be read.

    A tool that was called in vain (`tool_error`) is none. It counts for rollouts that solve
    nothing, too: how to say something has to be learned before what to say.
    """

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"conduct"})
    gate: ClassVar[str] = ""

    def measure(self, scene: Scene) -> Measurement:
        """The value; 0 for a rollout without turns. Raises UnknownValue without a rollout."""
        conduct = conduct_of(scene)
        errors = conduct.observations["format_error"]
        value = min(1.0, errors / conduct.turns) if conduct.turns else 0.0
        return Measurement(value=value, evidence={"format_errors": errors, "turns": conduct.turns})
