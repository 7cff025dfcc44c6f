"""bandit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from patchgym.sandbox.result import CommandResult

from .linter import PROBLEMS_LIMIT, Linter, Problem, Reading, Tool, UnreadableOutput, printed
from .report import Confidence, Severity
from .untrusted import line_number, listing, load, mapping, text

LEVELS: dict[str, Severity] = {"HIGH": "error", "MEDIUM": "warning", "LOW": "note"}
CONFIDENCES: dict[str, Confidence] = {"HIGH": "high", "MEDIUM": "medium", "LOW": "low"}
PASSWORDS = ("B105", "B106", "B107")
"""Their messages end in the password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandit:
    """bandit with its default tests and no configuration. `nosec` is ignored, in both states."""

    skip: tuple[str, ...] = ("B101",)
    """Tests to leave out; by default `assert`, which tests are full of."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        return Tool(name="bandit", layout="both", version_command=("bandit", "--version"))

    @property
    def fallback(self) -> Linter | None:
        """None: it takes no configuration."""
        return None

    def wants(self, path: str) -> bool:
        """Python files."""
        return path.endswith(".py")

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """Its argv; by default it would leave out folders such as .tox."""
        options = ["--quiet", "--ignore-nosec", "--format=json", "--exclude="]
        options += [f"--skip={','.join(self.skip)}"] if self.skip else []
        return ["bandit", *options, "--", *targets]

    def read(self, result: CommandResult) -> Reading:
        """Its JSON."""
        told = load(printed(result))
        results = mapping(told).get("results")
        if not isinstance(results, list) or len(results) > PROBLEMS_LIMIT:
            raise UnreadableOutput(f"its output has no list of at most {PROBLEMS_LIMIT} results")
        return Reading(
            problems=tuple(_problem(mapping(each)) for each in results),
            unread={
                text(error.get("filename")): text(error.get("reason"))[:300]
                for error in map(mapping, listing(mapping(told).get("errors")))
            },
            seen=frozenset(mapping(mapping(told).get("metrics"))),
        )


def _problem(told: dict[str, Any]) -> Problem:
    line = line_number(told.get("line_number"))
    rule, message = text(told.get("test_id")), text(told.get("issue_text"))
    lines = listing(told.get("line_range"))
    return Problem(
        rule=rule,
        path=text(told.get("filename")),
        line=line,
        end_line=line_number(lines[-1] if lines else line, least=line),
        message=message.partition(":")[0] if rule in PASSWORDS else message,
        severity=LEVELS.get(text(told.get("issue_severity")), "note"),
        confidence=CONFIDENCES.get(text(told.get("issue_confidence"))),
        secret=rule in PASSWORDS,
    )
