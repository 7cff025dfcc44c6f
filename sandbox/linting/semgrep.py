"""semgrep with local rules: ours, and your own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from patchgym.sandbox.result import CommandResult

from .linter import PROBLEMS_LIMIT, Linter, Problem, Reading, Tool, UnreadableOutput, printed
from .report import Confidence, Severity
from .untrusted import line_number, listing, load, mapping, text

FOLDER = "patchgym_rules"
SUFFIXES = (".py", ".pyi", ".js", ".jsx", ".ts", ".tsx")
LEVELS: dict[str, Severity] = {
    "CRITICAL": "error", "HIGH": "error", "ERROR": "error", "MEDIUM": "warning",
    "WARNING": "warning",
}  # fmt: skip
CONFIDENCES: dict[str, Confidence] = {"HIGH": "high", "MEDIUM": "medium", "LOW": "low"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Semgrep:
    """semgrep without network, metrics or registry. `nosemgrep` is ignored, in both states."""

    rules: Mapping[str, bytes] = field(default_factory=dict)
    """Rule files of your own, YAML by relative path."""
    bundled: bool = True
    """Whether our own rules are used as well: see rules/security.yaml."""
    suffixes: tuple[str, ...] = SUFFIXES
    """Ends of the names of the files that it is for."""
    seconds: float = 5.0
    """For one rule on one file; past it the file counts as not looked at."""
    native: bool = True
    """Use semgrep's own native command line, which it calls experimental; ten times faster."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        # names of our own: semgrep may put the path in front of a rule's name
        rules = self.rules.values()
        own = {f"{FOLDER}/own/{number}.yaml": data for number, data in enumerate(rules)}
        if self.bundled:
            own[f"{FOLDER}/security.yaml"] = bundled_rules()
        return Tool(
            name="semgrep",
            layout="both",
            files=own,
            environment={"SEMGREP_SEND_METRICS": "off", "SEMGREP_ENABLE_VERSION_CHECK": "0"},
        )

    @property
    def fallback(self) -> Linter | None:
        """The command line in Python."""
        return replace(self, native=False) if self.native else None

    def wants(self, path: str) -> bool:
        """By its suffix."""
        return path.endswith(self.suffixes)

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """Its argv."""
        options = ["--metrics=off", "--disable-version-check", "--disable-nosem", "--json"]
        options += ["--quiet", "--max-target-bytes=0", "--jobs=2"]
        options += [f"--timeout={self.seconds:g}", f"--config={folder}/{FOLDER}"]
        options += ["--experimental"] if self.native else ["--no-git-ignore"]
        return ["semgrep", "scan", *options, "--", *targets]

    def read(self, result: CommandResult) -> Reading:
        """Its JSON, which tells more than its SARIF: which files were not read to their end."""
        told = mapping(load(printed(result)))
        results = told.get("results")
        if not isinstance(results, list) or len(results) > PROBLEMS_LIMIT:
            raise UnreadableOutput(f"its output has no list of at most {PROBLEMS_LIMIT} results")
        scanned = listing(mapping(told.get("paths")).get("scanned"))
        return Reading(
            problems=tuple(_problem(mapping(each)) for each in results),
            unread={
                text(error.get("path")) or None: _reason(text(error.get("message")))
                for error in map(mapping, listing(told.get("errors")))
            },
            seen=frozenset(map(text, scanned)),
            version=text(told.get("version")) or None,
        )


def _reason(message: str) -> str:
    return " ".join(message.split())[:300] or "no reason given"


def _problem(told: dict[str, Any]) -> Problem:
    extra = mapping(told.get("extra"))
    line = line_number(mapping(told.get("start")).get("line"))
    confidence = text(mapping(extra.get("metadata")).get("confidence"))
    return Problem(
        rule=_rule_name(text(told.get("check_id"))),
        path=text(told.get("path")),
        line=line,
        end_line=line_number(mapping(told.get("end")).get("line"), least=line),
        message=text(extra.get("message")),
        severity=LEVELS.get(text(extra.get("severity")), "note"),
        confidence=CONFIDENCES.get(confidence.upper()),
    )


def _rule_name(name: str) -> str:
    """Without the folder, which semgrep may put in front."""
    _, front, rest = name.rpartition(f"{FOLDER}.")
    return rest.removeprefix("own.") if front else name


@cache
def bundled_rules() -> bytes:
    """The rules that come with patchgym, YAML."""
    return (files("patchgym.sandbox") / "linting" / "rules" / "security.yaml").read_bytes()
