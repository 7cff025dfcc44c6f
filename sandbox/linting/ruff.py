"""ruff, as a linter and as a formatter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from patchgym.sandbox.result import CommandResult

from .linter import (
    PROBLEMS_LIMIT,
    SYNTAX,
    Linter,
    Problem,
    Reading,
    Tool,
    UnreadableOutput,
    first_complaint,
    printed,
)
from .report import Severity
from .unified import read_edits
from .untrusted import line_number, load, mapping, text

SELECT = ("E4", "E7", "E9", "F", "B", "S", "ASYNC", "PLE")
CONFIGURATION = ("pyproject.toml", "ruff.toml", ".ruff.toml")
ERRORS = re.compile(f"{SYNTAX}|E9|F5|F63|F7|F82|PLE")
PASSWORDS = ("S105", "S106", "S107")
STYLE = re.compile("E|W|I|D|N|Q|UP|COM|C4|ANN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruff:
    """`ruff check` with these rules. Comments that suppress are ignored, in both states."""

    select: tuple[str, ...] = SELECT
    """Rules and families. The S family is bandit's, and far faster."""
    ignore: tuple[str, ...] = ("S101",)
    """Of those; by default `assert`, which tests are full of."""
    isolated: bool = False
    """Without the repository's configuration (the base commit's: line length, per-file ignores)."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        names = () if self.isolated else CONFIGURATION
        return Tool(
            name="ruff",
            version_command=("ruff", "--version"),
            configuration=names,
        )

    @property
    def fallback(self) -> Linter | None:
        """Without the repository's configuration."""
        return None if self.isolated else replace(self, isolated=True)

    def wants(self, path: str) -> bool:
        """Python files, stubs too."""
        return path.endswith((".py", ".pyi"))

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """Its argv."""
        options = ["--output-format=json", "--no-cache", "--no-fix", "--ignore-noqa"]
        options += ["--no-force-exclude", f"--select={','.join(self.select)}"]
        options += [f"--ignore={','.join(self.ignore)}"] if self.ignore else []
        options += ["--isolated"] if self.isolated else []
        return ["ruff", "check", *options, "--", *targets]

    def read(self, result: CommandResult) -> Reading:
        """Its JSON."""
        found = load(printed(result))
        if not isinstance(found, list) or len(found) > PROBLEMS_LIMIT:
            raise UnreadableOutput(f"its output is no list of at most {PROBLEMS_LIMIT} findings")
        return Reading(problems=tuple(_problem(mapping(each)) for each in found))


def _problem(told: dict[str, Any]) -> Problem:
    rule = text(told.get("code")) or SYNTAX
    line = line_number(mapping(told.get("location")).get("row"))
    return Problem(
        rule=rule,
        path=text(told.get("filename")),
        line=line,
        end_line=line_number(mapping(told.get("end_location")).get("row"), least=line),
        message=text(told.get("message")),
        severity=_severity(rule),
        secret=rule in PASSWORDS,
    )


def _severity(rule: str) -> Severity:
    """ruff has none of its own."""
    if ERRORS.match(rule):
        return "error"
    family = re.match("[A-Z]+", rule)
    return "note" if family and STYLE.fullmatch(family[0]) else "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuffFormat:
    """`ruff format`, with the repository's own style as the base commit has it."""

    isolated: bool = False
    """Without the repository's configuration."""
    stands_in: bool = False
    """The repository names no formatter: then it is free in its quotes."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        names = () if self.isolated else CONFIGURATION
        return Tool(
            name="ruff-format",
            exit_codes=frozenset({0, 1, 2}),
            version_command=("ruff", "--version"),
            configuration=names,
            formats=True,
            stands_in=self.stands_in,
        )

    @property
    def fallback(self) -> Linter | None:
        """Without the repository's configuration."""
        return None if self.isolated else replace(self, isolated=True)

    def wants(self, path: str) -> bool:
        """Python files, stubs too."""
        return path.endswith((".py", ".pyi"))

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """Its argv; files that the repository excludes have no style."""
        options = ["--diff", "--no-cache", "--force-exclude"]
        options += ['--config=format.quote-style="preserve"'] if self.stands_in else []
        options += ["--isolated"] if self.isolated else []
        return ["ruff", "format", *options, "--", *targets]

    def read(self, result: CommandResult) -> Reading:
        """Its diff, and on stderr the files that it can't parse."""
        unread: dict[str | None, str] = {}
        for line in result.stderr.text().splitlines():
            broken = re.match(r"error: Failed to (\w+) (.*?)(?::\d+:\d+)?: ", line)
            if broken:
                unread[broken[2]] = f"it can't {broken[1]} it"
        if result.exit_code == 2 and not unread:
            raise UnreadableOutput(first_complaint(result))
        return Reading(edits=read_edits(printed(result)), unread=unread)
