"""What a component of the reward is. Another one is a class of ten lines:

    @dataclass(frozen=True, kw_only=True)
    class Todos(Component):
        limit: int = 3

        penalty: ClassVar[bool] = True

        def measure(self, scene: Scene) -> Measurement:
            lines = [line for _, hunk in scene.change.hunks() for line in hunk.added]
            found = sum("TODO" in line.text for line in lines)
            return Measurement(value=min(1.0, found / self.limit))

Its fields are its options, with their defaults: see docs/rewards.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from patchgym.sandbox.linting import Linter

from .base import Fault
from .scene import Scene

Need = Literal["verdict", "lint", "conduct"]


class UnknownValue(Exception):
    """Raised by `measure` for what can't be known here; `str()` says why, one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A component's answer."""

    value: float
    """In [0, 1]."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    """What it was computed from, JSON types only."""
    faults: tuple[Fault, ...] = ()
    """The places at fault, those that weigh most first."""
    detail: str = ""
    """What could not be looked at, where some of it could."""
    tools: str = ""
    """Names and versions of the tools that took part."""


class Component(ABC):
    """Base class: a frozen dataclass whose fields are the component's options.

    `measure` is synchronous and pure, so that a stored rollout can be scored again. It may raise
    anything: the score is then unknown, and the others go on.
    """

    version: ClassVar[str] = "1"
    """Changes whenever the same scene would get another value."""
    penalty: ClassVar[bool] = False
    """Its value is taken off the reward."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What the scene must have besides the change."""
    gate: ClassVar[str] = "tests"
    """The component that must be above `gate_above` for this one to count; empty: always counts."""
    required: ClassVar[bool] = False
    """Without its value the whole reward is unknown; otherwise it counts nothing then."""
    heavy: ClassVar[bool] = False
    """Takes processor time: it is measured in a process of its own, which its deadline ends."""

    @abstractmethod
    def measure(self, scene: Scene) -> Measurement:
        """The value with its evidence. Raises UnknownValue."""

    def linters(self) -> tuple[Linter, ...]:
        """The linters that must have run, for a component that needs `lint`."""
        return ()
