"""The security component: what linters find that endangers, secrets, and new dependencies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from patchgym.rewards.base import Fault
from patchgym.rewards.component import Component, Measurement, Need
from patchgym.rewards.scene import Scene
from patchgym.sandbox.linting import (
    Bandit,
    DetectSecrets,
    Finding,
    Linter,
    LintReport,
    Ruff,
    Semgrep,
)

from .audit import Audit, audit
from .dependencies import Dependency, NewDependencies, new_dependencies
from .lint import (
    check_numbers,
    check_seen,
    fault_of,
    is_for_tests,
    is_security,
    report_of,
    tools_of,
)

TOOLS = ("ruff", "bandit", "semgrep", "detect-secrets")
CONFIDENCE = {"high": 1.0, "medium": 0.7, "low": 0.3, None: 0.6}
MINOR = frozenset(
    "S101 S105 S106 S107 S110 S112 S311 S401 S402 S403 S404 S405 S406 S407 S408 S409 S603 S606"
    " S607".split()
)
"""ruff has no severities for its S rules: those that bandit, whose rules they are, calls low."""
PROSE = (".md", ".rst", ".txt", ".adoc")
SPAN_LIMIT = 10  # lines of a finding within which another tool's may be the same


@dataclass(frozen=True, slots=True, kw_only=True)
class _Risk:
    """One thing to be weighed."""

    weight: float
    fault: Fault
    kind: str
    """Rule or package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security(Component):
    """Penalty: `1 - exp(-sum / scale)` over new findings of ruff's S rules, bandit, semgrep and
    detect-secrets, each weighed by severity and confidence, and over new dependencies.

    What several tools find at one place counts once, as the worst of it. In tests and what they
    use, each rule counts once.
    """

    error: float = 1.0
    """Weight of a finding that endangers, at high confidence: 0.7 of it at medium, 0.3 at low."""
    warning: float = 0.5
    """Of one that may."""
    note: float = 0.02
    """Of one that is for a person to look at, such as a subprocess without a shell."""
    tests: float = 0.03
    """Factor for findings in tests and what they use."""
    secrets_in_tests: float = 0.02
    """The same for secrets, and for examples of them in prose: most are made up."""
    dependency: float = 0.3
    """Weight of a package that a manifest newly names and the task's own solution does not."""
    vulnerable: float = 1.0
    """Of one with a known vulnerability, besides."""
    scale: float = 1.0
    """The sum that makes the value 0.63."""
    audit: bool = False
    """Ask pip-audit about new packages that are pinned: it asks an index."""
    audit_seconds: float = 30.0
    """For that."""

    penalty: ClassVar[bool] = True
    needs: ClassVar[frozenset[Need]] = frozenset({"lint"})

    def __post_init__(self) -> None:
        names = ("error", "warning", "note", "tests", "secrets_in_tests")
        check_numbers(self, (*names, "dependency", "vulnerable"))
        check_numbers(self, ("scale", "audit_seconds"), above=0)

    def linters(self) -> tuple[Linter, ...]:
        """All four."""
        return (Ruff(), Bandit(), Semgrep(), DetectSecrets())

    def measure(self, scene: Scene) -> Measurement:
        """By what is new. A tool that failed is named in `detail`, the others count."""
        report = report_of(scene)
        wants = self.linters()
        detail = check_seen(
            scene, report, TOOLS, lambda path: any(linter.wants(path) for linter in wants)
        )
        added = new_dependencies(scene.change, scene.gold)
        told = audit(added.found, self.audit_seconds) if self.audit else Audit()
        risks = [*self._findings(scene, report), *self._packages(added.found, told)]
        risks.sort(key=lambda risk: -risk.weight)
        total = math.fsum(risk.weight for risk in risks)
        return Measurement(
            value=1.0 - math.exp(-total / self.scale),
            evidence={
                "sum": total,
                "rules": [risk.kind for risk in risks],
                "weights": [risk.weight for risk in risks],
                "dependencies": [each.name for each in added.found],
                "vulnerable": {name: list(ids) for name, ids in told.vulnerable.items()},
            },
            faults=tuple(risk.fault for risk in risks),
            detail=_detail(detail, added, told),
            tools=tools_of(report, TOOLS),
        )

    def _findings(self, scene: Scene, report: LintReport) -> list[_Risk]:
        risks: list[_Risk] = []
        in_tests: dict[str, _Risk] = {}
        for same in _same([each for each in report.new if is_security(each)]):
            worst = max(same, key=lambda each: self._weight(scene, each))
            risk = _Risk(
                weight=self._weight(scene, worst),
                fault=fault_of(worst),
                kind=f"{worst.tool} {worst.rule}",
            )
            if not is_for_tests(scene, worst.path):
                risks.append(risk)
            elif risk.weight > getattr(in_tests.get(risk.kind), "weight", 0.0):
                in_tests[risk.kind] = risk
        return [*risks, *in_tests.values()]

    def _weight(self, scene: Scene, finding: Finding) -> float:
        severity = finding.severity
        if finding.tool == "ruff" and finding.rule in MINOR:
            severity = "note"
        weight = {"error": self.error, "warning": self.warning, "note": self.note}[severity]
        weight *= CONFIDENCE[finding.confidence]
        secret = finding.tool == "detect-secrets"
        if is_for_tests(scene, finding.path):
            return weight * (self.secrets_in_tests if secret else self.tests)
        if secret and finding.confidence != "high" and finding.path.endswith(PROSE):
            return weight * self.secrets_in_tests
        return weight

    def _packages(self, found: Iterable[Dependency], told: Audit) -> list[_Risk]:
        return [
            _Risk(
                weight=self.dependency + self.vulnerable * (each.name in told.vulnerable),
                fault=_package_fault(each, told),
                kind=f"dependency {each.name}",
            )
            for each in found
        ]


def _package_fault(each: Dependency, told: Audit) -> Fault:
    ids = ", ".join(told.vulnerable.get(each.name, ())[:5])
    known = f", which has known vulnerabilities: {ids}" if ids else ""
    message = f"new dependency ({each.ecosystem}): {each.name}{known}"
    return Fault(message=message, path=each.path, line=each.line)


def _same(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings by place: on one line, or another tool's within the lines of a short one."""
    groups: list[list[Finding]] = []
    end = 0
    for each in sorted(findings, key=lambda each: (each.path, each.line, -each.end_line)):
        last = groups[-1] if groups else []
        near = bool(last) and last[0].path == each.path
        others = all(one.tool != each.tool for one in last)
        if near and (last[0].line == each.line or (each.line <= end and others)):
            last.append(each)
        else:
            groups.append([each])
            end = 0
        if each.end_line - each.line < SPAN_LIMIT:
            end = max(end, each.end_line)
    return groups


def _detail(seen: str, added: NewDependencies, told: Audit) -> str:
    manifests = f"unreadable: {', '.join(added.unread[:5])}" if added.unread else ""
    return "; ".join(part for part in (seen, manifests, told.problem) if part)
