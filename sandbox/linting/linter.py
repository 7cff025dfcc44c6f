"""The plug-in point: what a linter is, and what it hands back.

A linter never sees the work tree. It runs on copies of the changed files, or of the whole project,
in two states: `before` (the base commit) and `after` (with the diff).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from patchgym.sandbox.result import CommandResult

from .report import Confidence, Severity

Layout = Literal["both", "each", "project", "bare"]
PROBLEMS_LIMIT = 20_000  # of one command
SYNTAX = "invalid-syntax"
"""The rule of problems that say that a file can't be parsed: then nothing in it is gone."""


class UnreadableOutput(Exception):
    """A linter's output is not what it should be; `str()` is the reason, one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A finding before it is known whether it is new."""

    rule: str
    """The linter's own name for it."""
    path: str
    """As the linter prints it: absolute, or relative to the folder where it ran."""
    line: int
    """From 1."""
    end_line: int
    """The last line that it is about."""
    message: str
    """For a person."""
    severity: Severity
    """error, warning or note."""
    confidence: Confidence | None = None
    """How sure the linter is, where it says so."""
    secret: bool = False
    """Its line may hold a secret, so that nothing quotes the line; the message must not either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Lines that a formatter would put something else in place of."""

    first: int
    """From 1. With `last` = `first` - 1, something would be put in before this line."""
    last: int
    """Included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one command of a linter said."""

    problems: tuple[Problem, ...] = ()
    """Everything that it found."""
    edits: Mapping[str, tuple[Edit, ...]] = field(default_factory=dict)
    """What a formatter would change, by path."""
    unread: Mapping[str | None, str] = field(default_factory=dict)
    """Why a path was not looked at, or not to its end; None stands for all of them."""
    seen: frozenset[str] | None = None
    """The paths that it says it looked at; None when it does not say."""
    version: str | None = None
    """Where the output tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """What the runner needs to know of a linter beforehand."""

    name: str
    """In findings and reports; unique among the linters of one run."""
    layout: Layout = "each"
    """both: one command for both states, run above the folders `before` and `after` of the changed
    files. each: a command for each state, run in its folder. project: likewise, in a copy of the
    whole project. bare: like both, but on the changed files as they are, those that steer linters
    too, and on nothing else."""
    exit_codes: frozenset[int] = frozenset({0, 1})
    """Those after which the output counts; any other is a crash."""
    version_command: tuple[str, ...] = ()
    """Prints the version; empty when the output tells it."""
    configuration: tuple[str, ...] = ()
    """Names of the repository's files that steer it: always those of the base commit."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files of its own, by relative path; put into a folder that `command` is told."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Extra environment of its commands."""
    formats: bool = False
    """Whether it is a formatter."""
    stands_in: bool = False
    """A formatter that the repository does not name, for want of one that it does."""


class Linter(Protocol):
    """A linter; `Ruff`, `Bandit`, `DetectSecrets`, `DiffFormatter`, `SarifLinter` are such."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        ...

    @property
    def fallback(self) -> Linter | None:
        """What to run when it fails, such as itself without the repository's configuration."""
        ...

    def wants(self, path: str) -> bool:
        """Whether a file is for it, by its path alone."""
        ...

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """The argv for these files; `folder` holds the tool's own `files`."""
        ...

    def read(self, result: CommandResult) -> Reading:
        """What it said. Raises UnreadableOutput; it runs in a thread, on untrusted bytes."""
        ...


@runtime_checkable
class Choice(Protocol):
    """What a linter has, besides, in whose place the runner puts others; `Formatter` is one."""

    def chosen(self, configuration: Mapping[str, bytes]) -> Sequence[Linter]:
        """Those others, by the base commit's files that `tool.configuration` names, by path."""
        ...


def printed(result: CommandResult) -> bytes:
    """All of a command's stdout. Raises UnreadableOutput when some of it was dropped."""
    if result.stdout.dropped:
        raise UnreadableOutput("its output is too long")
    return result.stdout.head + result.stdout.tail


def first_complaint(result: CommandResult) -> str:
    """The first line of stderr that says something."""
    lines = [line.strip() for line in result.stderr.text().splitlines() if line.strip()]
    return (lines or ["no reason given"])[0][:300]
