"""Environment recipes: a TOML file says what the tests of a repository need, by version.

Several `[[recipe]]` tables make a file; the first one that fits a task counts. See docs/recipes.md.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.sandbox.errors import PatchgymError, SandboxUsageError

from .environment import Environment

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SHIPPED = Path(__file__).parent / "recipes.toml"
OFFICIAL_WORKDIR = "/testbed"
"""Where SWE-bench's own images hold the repository."""
OFFICIAL_PATH = (
    "/opt/miniconda3/envs/testbed/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
"""PATH that finds the environment of SWE-bench's own images there, and Debian's programs here."""
ANY = "*"


class RecipeError(PatchgymError, ValueError):
    """A file of recipes that can't be used; the text is one line and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the tests of some versions of one repository need."""

    repo: str
    """Name of the repository, owner/name."""
    versions: tuple[str, ...] = (ANY,)
    """Any of these: `*` for all, `1.7` for that one, or a range such as `>=3.0,<4`."""
    environment: Environment
    """How its images are made, and its tests run."""
    image: str | None = None
    """Tag of a ready image to be preferred where a registry has it; see `image_of`."""
    checked: str = ""
    """What was run with it, for people."""

    def image_of(self, task_id: str) -> str | None:
        """`image` for one task: `{id}` is its id in lower case, with `_1776_` for `__`."""
        return self.image and self.image.replace("{id}", task_id.lower().replace("__", "_1776_"))

    def fits(self, repo: str, version: str | None) -> bool:
        """Whether it is for that version of that repository; without a version only `*` fits."""
        return repo == self.repo and any(_covers(each, version) for each in self.versions)


def load_recipes(path: Path | None = None) -> tuple[Recipe, ...]:
    """The recipes of a file in order; None is the file that comes with patchgym.

    Raises RecipeError (one line, `file:line: what: what to do`).
    """
    return _shipped() if path is None else _load(path)


def find_recipe(recipes: Sequence[Recipe], repo: str, version: str | None) -> Recipe | None:
    """The first that fits. Put a user's own recipes before the shipped ones."""
    return next((recipe for recipe in recipes if recipe.fits(repo, version)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """One `[[recipe]]` as it is written; the fields are those of Recipe and Environment."""

    repo: str
    versions: tuple[str, ...] = (ANY,)
    base: str = "bookworm"
    packages: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    test_command: str = ""
    report: str = "pytest"
    environment: dict[str, str] = field(default_factory=dict)
    timeout_seconds: float = 900.0
    workdir: str | None = None
    image: str | None = None
    checked: str = ""


@cache
def _shipped() -> tuple[Recipe, ...]:
    return _load(SHIPPED)


def _load(path: Path) -> tuple[Recipe, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise RecipeError(f"{path}: {reason}: give a TOML file with [[recipe]] tables") from error
    try:
        mapping = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{path}:{line[1] if line else len(text.splitlines())}"
        raise RecipeError(f"{where}: not TOML ({error}): mend it") from error
    lines = _Lines(path, text)
    _refuse_unknown(mapping, ("recipe",), lambda key: lines.of(None, key))
    tables = mapping.get("recipe", [])
    if not isinstance(tables, list) or not tables:
        raise RecipeError(f"{path}:1: no recipe in it: begin each one with [[recipe]]")
    return tuple(_recipe(table, number, lines) for number, table in enumerate(tables))


class _Lines:
    """Where in the file a key of a table stands; tomllib does not tell."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.split("\n")
        self._starts = [
            number
            for number, line in enumerate(self._lines)
            if re.match(r"\s*\[\[\s*recipe\s*\]\]", line)
        ]

    def of(self, table: int | None, key: str | None = None) -> str:
        """`file:line` of a key, else of the table's begin."""
        start, end = 0, len(self._lines)
        if table is not None and table < len(self._starts):
            start, end = [*self._starts, end][table : table + 2]
        written = rf"\s*(?:\[+\s*(?:recipe\.)?)?[\"']?{re.escape(key or '')}[\"']?\s*[=.\]]"
        found = (
            number for number in range(start, end) if key and re.match(written, self._lines[number])
        )
        return f"{self._path}:{next(found, start) + 1}"


def _recipe(table: Any, number: int, lines: _Lines) -> Recipe:
    from pydantic import ValidationError

    if not isinstance(table, dict):
        raise RecipeError(f"{lines.of(number)}: a recipe is a table: begin it with [[recipe]]")
    known = [each.name for each in fields(_Table)]
    _refuse_unknown(table, known, lambda key: lines.of(number, key))
    try:
        read = _adapter().validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        name = ".".join(str(part) for part in first["loc"])
        if first["type"].startswith("missing"):
            raise RecipeError(f"{lines.of(number)}: no key {name}: add it") from None
        found = type(first["input"]).__name__
        reason = f"{first['msg'][:1].lower()}{first['msg'][1:]}, not {found}"
        raise RecipeError(f"{lines.of(number, key)}: {name}: {reason}: mend it") from None
    for key, problem in _problems(read):
        raise RecipeError(f"{lines.of(number, key)}: {key}: {problem}")
    return _made(read)


def _made(table: _Table) -> Recipe:
    official = table.image is not None
    environment = Environment(
        base=table.base,
        packages=table.packages,
        setup=table.setup,
        install=table.install,
        test_command=table.test_command,
        report=table.report,
        # the same environment has to do in the ready image
        variables={**({"PATH": OFFICIAL_PATH} if official else {}), **table.environment},
        timeout=table.timeout_seconds,
        workdir=table.workdir or (OFFICIAL_WORKDIR if official else Environment().workdir),
    )
    return Recipe(
        repo=table.repo,
        versions=table.versions,
        environment=environment,
        image=table.image,
        checked=table.checked,
    )


def _problems(table: _Table) -> Iterable[tuple[str, str]]:
    """Key, and what is wrong with it: what to do."""
    from packaging.specifiers import InvalidSpecifier

    if not re.fullmatch(r"[\w.-]+/[\w.-]+", table.repo):
        yield "repo", f"{table.repo!r} is no name of a repository: write owner/name"
    if not table.versions:
        yield "versions", 'it is empty: leave it out, or write ["*"]'
    for text in table.versions:
        try:
            _specifiers(text)
        except InvalidSpecifier:
            yield "versions", f'{text!r} is no version: write "*", "1.7" or ">=3.0,<4"'
    if not table.timeout_seconds > 0:
        yield "timeout_seconds", f"{table.timeout_seconds:g} is no time: give seconds over 0"
    workdir = table.workdir
    if workdir is not None and (not workdir.startswith("/") or workdir in ("/", "/tmp")):
        yield "workdir", f"{workdir!r} can't hold a repository: give an absolute folder"
    yield from _command_problems(table)


def _command_problems(table: _Table) -> Iterable[tuple[str, str]]:
    try:
        _ = Environment(test_command=table.test_command, report=table.report).command
    except SandboxUsageError as error:
        key = "test_command" if "placeholder" in str(error) else "report"
        yield key, f"{error}"
    for key in ("packages", "setup", "install"):
        if any(not each.strip() or "\0" in each for each in getattr(table, key)):
            yield key, "one of them is empty: take it out"
    for name in table.environment:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
            yield "environment", f"{name!r} can't be a variable: use letters, digits and _"


def _refuse_unknown(
    table: Mapping[str, Any], known: Sequence[str], where: Callable[[str], str]
) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
            raise RecipeError(f"{where(key)}: unknown key {key}: {advice}")


def _covers(specifier: str, version: str | None) -> bool:
    from packaging.version import InvalidVersion, Version

    if specifier == ANY or version == specifier:
        return True
    try:
        # a version under development, such as 8.0.dev1, is one of the range's too
        return version is not None and _specifiers(specifier).contains(
            Version(version), prereleases=True
        )
    except InvalidVersion:
        return False


@cache
def _specifiers(text: str) -> Any:
    from packaging.specifiers import SpecifierSet

    if text == ANY:
        return SpecifierSet()
    return SpecifierSet(f"=={text}" if re.match(r"\d", text) else text)


@cache
def _adapter() -> TypeAdapter[_Table]:
    # Inside: pydantic costs more to import than all of this module.
    from pydantic import TypeAdapter

    return TypeAdapter(_Table)
