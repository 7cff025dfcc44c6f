"""Runs the checks and tells what came of each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

import anyio

from patchgym.sandbox import SandboxUsageError

from .contract import CAPABILITIES, Backend, Capability
from .suite import CHECKS, Check

CHECK_LIMIT = 240.0  # seconds for one check, its leases included

Verdict = Literal["passed", "failed", "not claimed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What came of one check."""

    name: str
    """The check's."""
    capability: Capability
    """The capability it belongs to."""
    demand: str
    """What it demands."""
    verdict: Verdict
    """`not claimed` means that it was not run."""
    reason: str = ""
    """One line: what the back end did instead, when it failed."""
    seconds: float = 0.0
    """Wall-clock time, waiting for leases included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of all."""

    findings: tuple[Finding, ...]
    """In the suite's order."""

    def having(self, verdict: Verdict) -> tuple[Finding, ...]:
        """The findings with that verdict."""
        return tuple(each for each in self.findings if each.verdict == verdict)

    @property
    def ok(self) -> bool:
        """Something was checked and nothing failed."""
        return bool(self.having("passed")) and not self.having("failed")

    def document(self) -> dict[str, Any]:
        """For JSON: `ok`, the counts, and `checks` with each finding's fields."""
        return {
            "ok": self.ok,
            "passed": len(self.having("passed")),
            "failed": len(self.having("failed")),
            "not_claimed": len(self.having("not claimed")),
            "checks": [asdict(each) for each in self.findings],
        }


async def check(
    backend: Backend,
    *,
    only: Collection[str] = (),
    told: Callable[[Finding], None] = lambda finding: None,
) -> Report:
    """Hold a back end to every check of what it claims, one after the other.

    `only` leaves all checks out but those of these names; `told` hears of each finding as it is
    made. Raises SandboxUsageError for claims and names that don't exist; a back end that fails,
    whatever it raises, is a finding.
    """
    claims = set(backend.claims)
    unknown = claims - set(CAPABILITIES) or set(only) - {each.name for each in CHECKS}
    if unknown:
        raise SandboxUsageError(f"no capability or check called {sorted(unknown)[0]!r}")
    findings: list[Finding] = []
    for each in CHECKS:
        if only and each.name not in only:
            continue
        findings.append(await _find(backend, each, claimed=each.capability in claims))
        told(findings[-1])
    return Report(findings=tuple(findings))


async def _find(backend: Backend, each: Check, *, claimed: bool) -> Finding:
    started = anyio.current_time()
    reason = ""
    if claimed:
        try:
            with anyio.move_on_after(CHECK_LIMIT) as scope:
                await each.run(backend)
            if scope.cancelled_caught:
                reason = f"it had not ended after {CHECK_LIMIT:.0f} s"
        except Exception as problem:  # whatever a stranger's back end raises is its failure
            reason = _explain(problem)
    return Finding(
        name=each.name,
        capability=each.capability,
        demand=each.demand,
        verdict="not claimed" if not claimed else "failed" if reason else "passed",
        reason=reason,
        seconds=anyio.current_time() - started,
    )


def _explain(problem: Exception) -> str:
    while isinstance(problem, ExceptionGroup):
        problem = problem.exceptions[0]
    name = type(problem).__name__
    text = " ".join(str(problem).split())
    return text if name == "Unmet" and text else f"{name}: {text}"
