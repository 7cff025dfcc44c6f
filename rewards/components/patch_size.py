"""The patch size component: how much longer a change is than it had to be."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.component import Component, Measurement, UnknownValue
from patchgym.rewards.scene import Change, ChangedFile, Scene

from .needless.places import is_docs, is_test

_USUAL = 20.0  # lines of a gold patch up to which slack and scale are as they are set


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchSize(Component):
    """Penalty: 0 up to about the gold patch's size, `1 - exp(-excess / scale)` past it.

    The same fix can be written in a few lines more or less, and a comment or a docstring is no
    vice: `slack` lines past gold are free. Past a gold patch of 20 lines, slack and scale grow in
    proportion to it, because what is twice as large varies twice as much. Without a gold patch,
    `alone` lines are free and the curve is wider.
    """

    scale: float = 10.0
    """Excess in lines at which the value reaches 1 - 1/e, for a gold patch of up to 20 lines."""
    slack: float = 4.0
    """Lines past gold that cost nothing."""
    alone: float = 40.0
    """Lines that cost nothing where there is no gold patch."""
    alone_scale: float = 80.0
    """The scale where there is no gold patch."""
    file_lines: float = 2.0
    """What a file beyond gold's number of files counts, in lines; none for tests and docs."""
    hunk_lines: float = 0.5
    """What a hunk beyond gold's number of hunks counts, likewise."""
    aside_lines: float = 0.1
    """What a changed line of tests or documentation counts."""
    binary_lines: float = 50.0
    """What a binary file counts."""

    version: ClassVar[str] = "2"
    penalty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("scale", "alone_scale"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise ValueError(f"{name} is {value}: it must be above 0")
        for name in ("slack", "alone", "file_lines", "hunk_lines", "aside_lines", "binary_lines"):
            if not (math.isfinite(value := getattr(self, name)) and value >= 0):
                raise ValueError(f"{name} is {value}: it must be 0 or more")

    def measure(self, scene: Scene) -> Measurement:
        """The value, with both sizes as evidence. Raises UnknownValue for a diff, or a gold
        patch, that does not apply."""
        if scene.change.problem:
            raise UnknownValue(f"the diff does not apply: {scene.change.problem}")
        if scene.gold.problem:
            raise UnknownValue(f"the gold patch does not apply: {scene.gold.problem}")
        size = self._size(scene.change, scene.task.test_files)
        evidence: dict[str, object] = dict(size.evidence)
        if not scene.gold.files:
            excess, scale = max(0.0, size.lines - self.alone), self.alone_scale
        else:
            gold = self._size(scene.gold, scene.task.test_files)
            evidence["gold"] = gold.evidence
            growth = max(1.0, gold.lines / _USUAL)
            excess = max(0.0, size.lines - gold.lines - self.slack * growth)
            excess += self.file_lines * max(0, size.files - gold.files)
            excess += self.hunk_lines * max(0, size.hunks - gold.hunks)
            scale = self.scale * growth
        evidence |= {"excess": round(excess, 3), "scale": round(scale, 3)}
        value = 1.0 - math.exp(-excess / scale)
        return Measurement(value=value, evidence=evidence, detail=scene.change.cut)

    def _size(self, change: Change, test_files: Collection[str]) -> _Size:
        aside = [file for file in change.files if _is_aside(file, test_files)]
        main = [file for file in change.files if not _is_aside(file, test_files)]
        return _Size(
            lines=sum(self._lines(file) for file in main)
            + self.aside_lines * sum(self._lines(file) for file in aside),
            files=len(main),
            hunks=sum(len(file.hunks) for file in main),
            evidence={
                "added": sum(file.added for file in change.files),
                "removed": sum(file.removed for file in change.files),
                "files": len(change.files),
                "hunks": sum(len(file.hunks) for file in change.files),
                "binary": sum(file.binary for file in change.files),
                "in_tests_and_docs": sum(file.added + file.removed for file in aside),
            },
        )

    def _lines(self, file: ChangedFile) -> float:
        return self.binary_lines if file.binary else float(file.added + file.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    lines: float
    """Weighted."""
    files: int
    hunks: int
    evidence: dict[str, int]


def _is_aside(file: ChangedFile, test_files: Collection[str]) -> bool:
    return is_test(file.path, test_files) or is_docs(file.path)
