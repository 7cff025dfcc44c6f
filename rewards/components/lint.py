"""The lint component: what ruff newly finds, but for what concerns security."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault
from patchgym.rewards.component import Component, Measurement, Need, UnknownValue
from patchgym.rewards.scene import Scene
from patchgym.rewards.tampering.roles import is_test_path
from patchgym.sandbox.linting import Finding, Linter, LintReport, Ruff
from patchgym.sandbox.linting.report import Severity

SECURITY_TOOLS = frozenset({"bandit", "semgrep", "detect-secrets"})
FIXTURES = frozenset({"fixtures", "testdata", "test_data", "test-data", "testing", "conftest.py"})
HABITS = frozenset({"B904", "B905", "E402", "F403", "F405"})
"""Rules that the whole of a repository follows or does not: a single case says little."""
SHOWN = 5
"""Reasons that `detail` has room for."""


def report_of(scene: Scene) -> LintReport:
    """The scene's lint report. Raises UnknownValue when there is none."""
    if scene.lint is None:
        raise UnknownValue("no linter was run")
    return scene.lint


def is_security(finding: Finding) -> bool:
    """Whether a finding is for the security component: ruff's S rules, and other tools."""
    if finding.tool == "ruff":
        return finding.rule[:1] == "S" and finding.rule[1:2].isdigit()
    return finding.tool in SECURITY_TOOLS


def is_for_tests(scene: Scene, path: str) -> bool:
    """Whether a file is a test, or something that tests use."""
    parts = path.split("/")
    return (
        is_test_path(path) or path in scene.task.test_files or not FIXTURES.isdisjoint(parts)
    )  # fmt: skip


def unseen(report: LintReport, tools: Collection[str], wants: Callable[[str], bool]) -> list[str]:
    """What `tools` did not look at of the files that they are for, one reason each."""
    return [
        ": ".join(part for part in (each.tool, each.path, each.reason) if part)
        for each in report.skipped
        if (each.tool is None or each.tool in tools) and (each.path is None or wants(each.path))
    ]


def check_seen(
    scene: Scene, report: LintReport, tools: Collection[str], wants: Callable[[str], bool]
) -> str:
    """What was not looked at, for `detail`. Raises UnknownValue when nothing was."""
    reasons = unseen(report, tools, wants)
    paths = {file.path for file in scene.change.files if file.after is not None}
    paths = {path for path in paths if wants(path)}
    blind = {(each.tool, each.path) for each in report.skipped}

    def sees(tool: str, path: str) -> bool:
        return blind.isdisjoint({(tool, path), (tool, None), (None, path), (None, None)})

    ran = [tool for tool in tools if tool in report.seconds]
    if paths and not any(sees(tool, path) for tool in ran for path in paths):
        raise UnknownValue(told(reasons) or "the linters that it needs did not run")
    return told(reasons)


def told(reasons: list[str]) -> str:
    """The first reasons, and how many more there are."""
    more = [f"and {len(reasons) - SHOWN} more"] if len(reasons) > SHOWN else []
    shown = "; ".join([*reasons[:SHOWN], *more])
    return f"not looked at: {shown}" if shown else ""


def tools_of(report: LintReport, tools: Collection[str]) -> str:
    """Names and versions of those that ran."""
    return " ".join(f"{name} {report.versions[name]}" for name in sorted(tools)
                    if name in report.versions)  # fmt: skip


def check_numbers(options: object, names: Collection[str], *, above: float | None = None) -> None:
    """Raise ValueError, naming the option, for one that is below 0 or not over `above`."""
    for name in names:
        value = getattr(options, name)
        if above is not None and not value > above:
            raise ValueError(f"{name} is {value}: it must be above {above:g}")
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}: it must be a finite number from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint(Component):
    """Penalty: `1 - exp(-sum / scale)` over new findings of ruff's rules, the S family aside.

    A matter of style counts once a file; names that an `__init__.py` hands on are one.
    """

    error: float = 1.0
    """Weight of a finding that breaks code, such as an undefined name."""
    warning: float = 0.3
    """Of one that may be a mistake."""
    note: float = 0.1
    """Of style."""
    tests: float = 0.3
    """Factor for findings in tests and what they use; 0 leaves them out."""
    scale: float = 3.0
    """The sum that makes the value 0.63."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"lint"})

    def __post_init__(self) -> None:
        check_numbers(self, ("error", "warning", "note", "tests"))
        check_numbers(self, ("scale",), above=0)

    def linters(self) -> tuple[Linter, ...]:
        """ruff, with the S family, so that one run serves `security` too."""
        return (Ruff(),)

    def measure(self, scene: Scene) -> Measurement:
        """By what is new; what the diff mended is in the evidence and earns nothing."""
        report = report_of(scene)
        detail = check_seen(scene, report, ("ruff",), Ruff().wants)
        found = [each for each in report.new if each.tool == "ruff" and not is_security(each)]
        weights = self._weights(scene, found)
        total = math.fsum(weights)
        order = sorted(range(len(found)), key=lambda at: -weights[at])
        fixed = [each for each in report.fixed if each.tool == "ruff" and not is_security(each)]
        return Measurement(
            value=1.0 - math.exp(-total / self.scale),
            evidence={
                "sum": total,
                "severities": dict(Counter(map(_severity, found))),
                "rules": dict(sorted(Counter(each.rule for each in found).items())),
                "fixed": len(fixed),
            },
            faults=tuple(fault_of(found[at]) for at in order),
            detail=detail,
            tools=tools_of(report, ("ruff",)),
        )

    def _weights(self, scene: Scene, found: Sequence[Finding]) -> list[float]:
        table = {"error": self.error, "warning": self.warning, "note": self.note}
        weights: list[float] = []
        seen: set[tuple[str, str]] = set()
        for each in found:
            severity = _severity(each)
            repeated = severity == "note" and (each.path, each.rule) in seen
            factor = self.tests if is_for_tests(scene, each.path) else 1.0
            weights.append(0.0 if repeated else table[severity] * factor)
            seen.add((each.path, each.rule))
        return weights


def _severity(finding: Finding) -> Severity:
    handed_on = finding.rule == "F401" and finding.path.endswith("__init__.py")
    return "note" if handed_on or finding.rule in HABITS else finding.severity


def fault_of(finding: Finding) -> Fault:
    """A finding as a person reads it."""
    return Fault(
        message=f"{finding.severity}: {finding.tool} {finding.rule}: {finding.message}",
        path=finding.path,
        line=finding.line,
    )
