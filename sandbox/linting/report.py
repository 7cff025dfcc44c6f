"""What linting a diff came to: new findings, what went, what could not be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One complaint of one linter."""

    tool: str
    """The linter's name."""
    rule: str
    """The linter's own name for it, such as S602; `invalid-syntax` where a file can't be parsed."""
    path: str
    """Relative to the workdir: where the file is now or, if it is gone, where it was."""
    line: int
    """From 1; in the new file, for what is `fixed` in the old one."""
    end_line: int
    """The last line that it is about."""
    message: str
    """The linter's, cut at 400 characters."""
    severity: Severity
    """error breaks or endangers, warning may, note is style."""
    confidence: Confidence | None = None
    """How sure the linter says it is."""
    source: str = ""
    """The text of `line`, without the blanks around it, cut at 200 characters; empty where it may
    hold a secret."""
    caused: bool = False
    """No line that it is about was touched by the diff; something else in the diff brought it."""

    @property
    def place(self) -> str:
        """path:line."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Something that was not looked at: no finding there does not mean that nothing is wrong."""

    tool: str | None
    """The linter's name; None when no linter saw it."""
    path: str | None
    """The file; None for all of them."""
    reason: str
    """For a person, one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unformatted:
    """What the formatter would rewrite of the lines that the diff touched in one file."""

    tool: str
    """The formatter's name."""
    path: str
    """Relative to the workdir."""
    ranges: tuple[tuple[int, int], ...]
    """First and last lines, from 1, in the new file. A blank line that is missing or too many
    counts for the touched line beside it."""
    was_formatted: bool | None
    """Whether the whole file was as the formatter wants it; None for a new file. False says that
    the repository hardly uses this formatter."""
    stands_in: bool = False
    """The repository names no formatter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """The difference that a diff makes to the linters."""

    new: tuple[Finding, ...] = ()
    """By severity, then place."""
    fixed: tuple[Finding, ...] = ()
    """What the base commit had and is gone, likewise."""
    formatting: tuple[Unformatted, ...] = ()
    """Files with touched lines that a formatter would rewrite, by path."""
    unformatted_before: tuple[str, ...] = ()
    """Changed files that were not as the formatter wants them at the base commit, sorted."""
    skipped: tuple[Skipped, ...] = ()
    """What nobody can vouch for."""
    files: tuple[str, ...] = ()
    """The changed files that were given to a linter, sorted."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """By linter, of those that ran."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall-clock seconds by linter; they run side by side."""
    notes: tuple[str, ...] = ()
    """What else to know, such as a configuration that could not be used."""

    @property
    def complete(self) -> bool:
        """Every linter looked at every changed file that it is for."""
        return not self.skipped

    def text(self, limit: int = 4000) -> str:
        """For an agent, in at most `limit` characters and a line that says what was cut."""
        lines = [_line(finding) for finding in self.new]
        lines += [_format_line(each) for each in self.formatting]
        lines += [f"not checked: {_skip_line(each)}" for each in self.skipped]
        if not lines:
            return "no new findings"
        return _fitted(lines, limit)


def _line(finding: Finding) -> str:
    caused = " (on an unchanged line)" if finding.caused else ""
    what = f"{finding.tool} {finding.rule}"
    return f"{finding.place}: {finding.severity}: {what}: {finding.message}{caused}"


def _format_line(each: Unformatted) -> str:
    places = [str(first) if first == last else f"{first}-{last}" for first, last in each.ranges]
    return f"{each.path}: {each.tool} would rewrite line {', '.join(places)}"


def _skip_line(each: Skipped) -> str:
    return ", ".join(part for part in (each.tool, each.path, each.reason) if part)


def _fitted(lines: Sequence[str], limit: int) -> str:
    kept: list[str] = []
    room = limit
    for line in lines:
        room -= len(line) + bool(kept)
        if room < 0:
            break
        kept.append(line)
    if len(kept) < len(lines):
        kept.append(f"[{len(lines) - len(kept)} more of {len(lines)} not shown]")
    return "\n".join(kept)
