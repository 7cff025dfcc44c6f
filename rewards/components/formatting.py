"""The formatting component: added lines that the repository's own formatter would rewrite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault
from patchgym.rewards.component import Component, Measurement, Need
from patchgym.rewards.scene import Scene
from patchgym.sandbox.linting import Formatter, Linter, LintReport, Unformatted

from .lint import check_numbers, check_seen, report_of, tools_of

FORMATTERS = ("ruff-format", "black", "yapf", "autopep8", "formatter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatting(Component):
    """Penalty: the share of added lines that the formatter would rewrite, or `1 - exp(-lines /
    scale)` where that is more: a badly formatted file is felt in a large patch too.

    A file that was not formatted before does not count. A new one does, unless half or more of the
    changed files that were there were not formatted: then the repository does not use this
    formatter, or another version of it.
    """

    scale: float = 10.0
    """Lines, whatever their share, that make the value 0.63."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"lint"})

    def __post_init__(self) -> None:
        check_numbers(self, ("scale",), above=0)

    def linters(self) -> tuple[Linter, ...]:
        """The formatter that the base commit names."""
        return (Formatter(),)

    def measure(self, scene: Scene) -> Measurement:
        """By the lines that the diff touched."""
        report = report_of(scene)
        detail = check_seen(scene, report, FORMATTERS, Formatter().wants)
        found = [each for each in report.formatting if each.tool in FORMATTERS]
        used = _is_used(scene, report)
        aside = {
            each.path
            for each in found
            if each.was_formatted is False or (each.was_formatted is None and not used)
        }
        sizes = {each.path: _size(each) for each in found if each.path not in aside}
        added = sum(
            file.added
            for file in scene.change.files
            if Formatter().wants(file.path) and file.path not in aside
        )
        lines = sum(sizes.values())
        counted = sorted(
            (each for each in found if each.path in sizes), key=lambda each: -sizes[each.path]
        )
        return Measurement(
            value=self._value(lines, added),
            evidence={
                "lines": lines,
                "added": added,
                "files": sizes,
                "not_formatted_before": sorted(aside),
                "stands_in": any(each.stands_in for each in found),
            },
            faults=tuple(fault for each in counted for fault in _faults(each)),
            detail=detail,
            tools=tools_of(report, FORMATTERS),
        )

    def _value(self, lines: int, added: int) -> float:
        return max(min(1.0, lines / max(added, 1)), 1.0 - math.exp(-lines / self.scale))


def _is_used(scene: Scene, report: LintReport) -> bool:
    """Whether more than half of the changed files that were there before were formatted."""
    old = [file for file in scene.change.files if file.before is not None]
    paths = {file.path for file in old if Formatter().wants(file.path)}
    unformatted = paths.intersection(report.unformatted_before)
    return not paths or 2 * len(unformatted) < len(paths)


def _size(each: Unformatted) -> int:
    return sum(last - first + 1 for first, last in each.ranges)


def _faults(each: Unformatted) -> list[Fault]:
    return [
        Fault(
            message=f"{each.tool} would rewrite "
            + (f"line {first}" if first == last else f"lines {first} to {last}"),
            path=each.path,
            line=first,
        )
        for first, last in each.ranges
    ]
