"""Formatters that print a unified diff, and the choice of the one that the repository uses."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from patchgym.sandbox.result import CommandResult

from .linter import Linter, Reading, Tool, UnreadableOutput, first_complaint, printed
from .ruff import CONFIGURATION as RUFF_FILES
from .ruff import RuffFormat
from .sarif import TARGETS
from .unified import read_edits

PYTHON = (".py", ".pyi")
UNREAD = "unread: "
# one file at a time: what ends the program at one file must not hide the others
ONE_BY_ONE = f"""name=$1; shift; for each; do
out=$("$name" --diff -- "$each"); code=$?
if [ $code -gt 1 ] || {{ [ $code = 1 ] && [ -z "$out" ]; }}; then out="{UNREAD}$each"; fi
printf '%s\\n' "$out"; done"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffFormatter:
    """A program that prints as a unified diff what it would rewrite, such as `gofmt -d`."""

    name: str
    """In reports."""
    arguments: tuple[str, ...]
    """Its argv. The word {targets} stands for the changed files, each a word."""
    suffixes: tuple[str, ...] = PYTHON
    """Ends of the names of the files that it is for."""
    configuration: tuple[str, ...] = ()
    """Names of the repository's files that steer it: always those of the base commit."""
    exit_codes: frozenset[int] = frozenset({0, 1})
    """Those after which the diff counts."""
    version_command: tuple[str, ...] = ()
    """Prints the version."""
    prefix: str = ""
    """What it puts in front of a path behind `+++`."""
    complaint: str = ""
    """Regular expression, with the path as its group, for lines of stderr about a file that it
    can't format."""
    plain: tuple[str, ...] = ()
    """As `arguments`, without the repository's configuration, for when it can't use that."""
    stands_in: bool = False
    """The repository does not name it."""

    @property
    def tool(self) -> Tool:
        """Its name and needs."""
        return Tool(
            name=self.name,
            exit_codes=self.exit_codes,
            version_command=self.version_command,
            configuration=self.configuration,
            formats=True,
            stands_in=self.stands_in,
        )

    @property
    def fallback(self) -> Linter | None:
        """Without the repository's configuration, if it can do that."""
        return replace(self, arguments=self.plain, plain=()) if self.plain else None

    def wants(self, path: str) -> bool:
        """By its suffix."""
        return path.endswith(self.suffixes)

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """`arguments` with the names filled in."""
        words: list[str] = []
        for word in self.arguments:
            words += targets if word == TARGETS else [word]
        return words

    def read(self, result: CommandResult) -> Reading:
        """Its diff, and the files that it could not format."""
        output = printed(result)
        edits = read_edits(output, prefix=self.prefix)
        unread: dict[str | None, str] = {}
        for line in re.findall(rb"(?m)^unread: (.+)$", output):
            unread[line.decode("utf-8", "replace")] = f"{self.name} can't format it"
        for line in result.stderr.text().splitlines() if self.complaint else ():
            found = re.match(self.complaint, line[:1000])
            if found:
                unread[found[1]] = f"{self.name} can't format it"
        if result.exit_code and not edits and not unread:
            raise UnreadableOutput(first_complaint(result))
        return Reading(edits=edits, unread=unread)


def black() -> DiffFormatter:
    """black, at whatever version is in the image: `required-version` is not looked at."""
    options = ("--diff", "--fast", "--workers=2", "--required-version=")
    return DiffFormatter(
        name="black",
        arguments=("black", *options, "--", TARGETS),
        plain=("black", *options, "--config=/dev/null", "--", TARGETS),
        configuration=("pyproject.toml",),
        exit_codes=frozenset({0, 123}),
        version_command=("black", "--version"),
        complaint=r"error: cannot (?:parse|format):? (.+?):",
    )


def yapf() -> DiffFormatter:
    """yapf."""
    return DiffFormatter(
        name="yapf",
        arguments=("sh", "-c", ONE_BY_ONE, "sh", "yapf", TARGETS),
        configuration=("pyproject.toml", "setup.cfg", ".style.yapf", ".yapfignore"),
        version_command=("yapf", "--version"),
    )


def autopep8() -> DiffFormatter:
    """autopep8. A configuration that says `in-place` is one that it refuses to print a diff for."""
    return DiffFormatter(
        name="autopep8",
        arguments=("autopep8", "--diff", "--", TARGETS),
        plain=("autopep8", "--diff", "--ignore-local-config", "--", TARGETS),
        configuration=("pyproject.toml", "setup.cfg", "tox.ini", ".pep8", ".flake8"),
        version_command=("autopep8", "--version"),
        prefix="fixed/",
    )


HOOKS = ".pre-commit-config.yaml"
CONFIGURATION = tuple(
    dict.fromkeys((
        *RUFF_FILES,
        *(name for each in (black(), yapf(), autopep8()) for name in each.configuration),
        HOOKS,
    ))
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatter:
    """The formatter that the base commit names, see `formatter_of`; the runner puts it in place of
    this one."""

    @property
    def tool(self) -> Tool:
        """The files that name formatters, or steer one."""
        return Tool(name="formatter", configuration=CONFIGURATION, formats=True)

    @property
    def fallback(self) -> Linter | None:
        """None."""
        return None

    def wants(self, path: str) -> bool:
        """Python files, stubs too."""
        return path.endswith(PYTHON)

    def command(self, targets: Sequence[str], folder: str) -> Sequence[str]:
        """That of `ruff format`."""
        return RuffFormat().command(targets, folder)

    def read(self, result: CommandResult) -> Reading:
        """As `ruff format`."""
        return RuffFormat().read(result)

    def chosen(self, configuration: Mapping[str, bytes]) -> tuple[Linter, ...]:
        """The one formatter, by the base commit's files."""
        return (formatter_of(configuration),)


def formatter_of(configuration: Mapping[str, bytes]) -> Linter:
    """The formatter that a repository uses, by its configuration files; `ruff format` stands in
    where none is named.

    A hook of pre-commit goes before a table of pyproject.toml, which may be a leftover. Of the
    tables, `[tool.ruff.format]` comes first; `[tool.ruff]` or a ruff.toml may be there for its
    linter alone, and counts where no other formatter has a table.
    """
    formatters: dict[str, Linter] = {
        "ruff-format": RuffFormat(),
        "black": black(),
        "yapf": yapf(),
        "autopep8": autopep8(),
    }
    named = _hooks(configuration) or _tables(configuration)
    found = next((formatter for name, formatter in formatters.items() if name in named), None)
    if found is None:
        return RuffFormat(stands_in="ruff" not in named)
    return found


def _hooks(configuration: Mapping[str, bytes]) -> set[str]:
    found: set[str] = set()
    for path, data in configuration.items():
        if path.rpartition("/")[2] == HOOKS:
            ids = re.findall(rb"(?m)^[ \t]*(?:-[ \t]+)?id:[ \t]*[\"']?([\w-]+)", data)
            found |= {name.decode() for name in ids}
    return {"black" if name == "black-jupyter" else name for name in found} & {
        "ruff-format", "black", "yapf", "autopep8",
    }  # fmt: skip


def _tables(configuration: Mapping[str, bytes]) -> set[str]:
    found: set[str] = set()
    for path, data in configuration.items():
        name = path.rpartition("/")[2]
        if name == ".style.yapf" or (name == "setup.cfg" and re.search(rb"(?m)^\[yapf\]", data)):
            found.add("yapf")
        elif name in ("ruff.toml", ".ruff.toml"):
            found |= {"ruff", *(["ruff-format"] if "format" in _toml(data) else [])}
        elif name == "pyproject.toml":
            tools = _toml(data).get("tool")
            tools = tools if isinstance(tools, dict) else {}
            found |= {each for each in ("black", "yapf", "autopep8", "ruff") if each in tools}
            ruff = tools.get("ruff")
            found |= {"ruff-format"} if isinstance(ruff, dict) and "format" in ruff else set()
    return found


def _toml(data: bytes) -> dict[str, object]:
    try:
        return tomllib.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
