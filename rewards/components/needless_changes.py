"""The needless changes component: what a change holds that its task did not ask for."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault
from patchgym.rewards.component import Component, Measurement, Need, UnknownValue
from patchgym.rewards.scene import Scene

from .needless.base import KINDS, Known, Needless
from .needless.inspection import inspect

_FAULTS = 200  # places that are listed; all are counted
_SHARE = 10.0  # lines that were needed, for each of which the scale grows by one


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedlessChanges(Component):
    """Penalty: `1 - exp(-needless / scale)`, of lines that the task did not need.

    Kinds weigh differently (see docs/rewards.md), and a large change may hold a little more: the
    scale grows by a line for every ten that were needed. What the task's own solution does in the
    same file is excused. Up to 2 MiB of Python are read as tokens, the rest by lines.
    """

    scale: float = 10.0
    """Needless lines at which a small change's value reaches 1 - 1/e."""
    ignore: tuple[str, ...] = ()
    """Kinds that don't count."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"verdict"})
    heavy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale is {self.scale}: it must be above 0")
        for kind in self.ignore:
            if kind not in KINDS:
                raise ValueError(f"ignore names {kind!r}: the kinds are {', '.join(KINDS)}")

    def measure(self, scene: Scene) -> Measurement:
        """The value, with a count by kind as evidence. Raises UnknownValue for a diff that does
        not apply."""
        if scene.change.problem:
            raise UnknownValue(f"the diff does not apply: {scene.change.problem}")
        loaded = None if scene.verdict is None else scene.verdict.loaded
        found = self._found(scene, loaded)
        weight = sum(each.weight for each in found)
        needed = max(0, scene.change.size - sum(each.count for each in found))
        counts: Counter[str] = Counter({kind: 0 for kind in KINDS if kind not in self.ignore})
        for each in found:
            counts[each.kind] += each.count
        return Measurement(
            value=1.0 - math.exp(-weight / (self.scale + needed / _SHARE)),
            evidence={"weight": round(weight, 3), "changed_lines": scene.change.size, **counts},
            faults=tuple(_fault(each) for each in found[:_FAULTS]),
            detail="; ".join(filter(None, (scene.change.cut, self._unseen(loaded)))),
        )

    def _unseen(self, loaded: tuple[str, ...] | None) -> str:
        if loaded is not None or "unexercised" in self.ignore:
            return ""
        return "not looked for: files that no test loads; the verdict does not tell"

    def _found(self, scene: Scene, loaded: tuple[str, ...] | None) -> list[Needless]:
        known = Known(
            test_files=frozenset(scene.task.test_files),
            loaded=None if loaded is None else frozenset(loaded),
            has_gold=bool(scene.gold.files),
        )
        found = inspect(scene.change, known)
        excused: set[tuple[str, str]] = {
            (each.kind, each.path) for each in inspect(scene.gold, known)
        }
        excused |= {(kind, file.path) for file in scene.gold.files for kind in _OF_FILES}
        kept = [
            each
            for each in found
            if each.kind not in self.ignore and (each.kind, each.path) not in excused
        ]
        return sorted(kept, key=lambda each: -each.weight)


_OF_FILES = ("generated", "stray", "unexercised")


def _fault(each: Needless) -> Fault:
    lines = f" ({each.count} lines)" if each.count > 1 else ""
    return Fault(message=f"{each.kind}: {each.message}{lines}", path=each.path, line=each.line)
