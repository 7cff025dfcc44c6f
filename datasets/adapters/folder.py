"""Plain folders: `task.toml`, a `repo/`, and the patches as files.

shop-12/
  task.toml        fail_to_pass, and what else a task has
  statement.md     or `statement` in task.toml
  gold.patch       or another name, under `gold_patch`
  test.patch       where there are hidden tests; or another name, under `test_patch`
  repo/            a git repository, or its plain files
"""

from __future__ import annotations

import difflib
import json
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import find_recipe
from patchgym.datasets.repository import commit_files
from patchgym.datasets.rows import Row
from patchgym.datasets.swebench import kept_paths
from patchgym.datasets.task import Focus, Task, TaskError
from patchgym.sandbox.errors import PatchError

from .base import Format, Sources, Unusable, Values
from .diffs import ended
from .git import resolve

if TYPE_CHECKING:
    from pydantic import TypeAdapter

TOML = "task.toml"
FOLDER = " folder"  # a key that no TOML file is likely to have


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """What `task.toml` may hold; the names are Task's."""

    id: str | None = None
    statement: str | None = None
    base_commit: str | None = None
    gold_patch: str = "gold.patch"
    test_patch: str = "test.patch"
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    focus: Focus | None = None
    image: str | None = None
    environment: Environment | None = None
    repo: str | None = None
    version: str | None = None
    flaky: dict[str, float] = field(default_factory=dict)
    split: str = "train"
    difficulty: float | None = None
    provenance: dict[str, str] = field(default_factory=dict)


def folder_rows(path: Path) -> tuple[Row, ...]:
    """The task in a folder, or those in the folders just below it, by name.

    Raises TaskError when there is none.
    """
    found = [path / TOML] if (path / TOML).is_file() else sorted(path.glob(f"*/{TOML}"))
    if not found:
        raise TaskError(
            f"{path}: no {TOML} in it, nor in a folder below: write one, see docs/tasks.md"
        )
    return tuple(_row(each) for each in found)


def _row(path: Path) -> Row:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        return Row(where=f"{path}:1", values={}, problem=f"{reason}: write it in UTF-8")
    except tomllib.TOMLDecodeError as error:
        return Row(where=f"{path}:1", values={}, problem=f"not TOML ({error}): mend it")
    return Row(where=f"{path}:1", values={**values, FOLDER: str(path.parent)})


def _task(row: Row, sources: Sources) -> Task:
    folder = Path(str(row.values[FOLDER]))
    table = _table({key: value for key, value in row.values.items() if key != FOLDER})
    files, repository, commit = _repository(folder / "repo", table)
    test_patch = _text(folder, table.test_patch, needed=table.test_patch != "test.patch")
    environment = table.environment
    if environment is None and table.repo:
        recipe = find_recipe(sources.recipes, table.repo, table.version)
        environment = recipe.environment if recipe else None
    return Task(
        id=table.id or folder.resolve().name,
        statement=table.statement or _text(folder, "statement.md"),
        base_commit=commit,
        gold_patch=ended(_text(folder, table.gold_patch)),
        fail_to_pass=table.fail_to_pass,
        pass_to_pass=table.pass_to_pass,
        test_files=table.test_files or _test_files(table, test_patch, environment),
        files=files,
        repository=repository,
        focus=table.focus,
        test_patch=ended(test_patch),
        image=table.image,
        environment=environment,
        repo=table.repo,
        version=table.version,
        flaky=table.flaky,
        split=table.split,
        difficulty=table.difficulty,
        provenance={"source": "folder", **table.provenance},
    )


def _table(values: Mapping[str, Any]) -> _Table:
    from pydantic import ValidationError

    known = [each.name for each in fields(_Table)]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
            raise Unusable(f"unknown key {key}: {advice}")
    try:
        return _adapter().validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise Unusable(f"{key}: {first['msg'].lower()}: mend it in {TOML}") from error


def _repository(folder: Path, table: _Table) -> tuple[Mapping[str, str] | None, str | None, str]:
    """Plain files or a repository's place, and the commit."""
    if not folder.is_dir():
        raise Unusable("no folder repo/ beside task.toml: put the repository there")
    if (folder / ".git").exists() or (folder / "HEAD").is_file():
        commit = resolve(folder, table.base_commit or "HEAD")
        return None, str(folder.resolve()), commit
    files = _files(folder)
    with tempfile.TemporaryDirectory(prefix="patchgym-folder-") as aside:
        with commit_files(files, Path(aside)) as repo:
            commit = repo.head.commit.hexsha
    if table.base_commit not in (None, commit):
        raise Unusable(f"its files make commit {commit}, not base_commit: leave base_commit out")
    return files, None, commit


def _files(folder: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise Unusable(f"repo/{name} is a link: make repo/ a git repository")
        if not path.is_file():
            continue
        try:
            # bytes first: read_text() would turn CRLF into LF
            files[name] = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise Unusable(f"repo/{name} is not UTF-8: make repo/ a git repository") from error
    if not files:
        raise Unusable("repo/ is empty: put the repository there")
    return files


def _text(folder: Path, name: str, *, needed: bool = True) -> str:
    """A file beside task.toml."""
    place = folder / name
    if not place.resolve().is_relative_to(folder.resolve()):
        raise Unusable(f"{name} is outside of its folder: put it beside task.toml")
    try:
        return place.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        if not needed:
            return ""
        raise Unusable(f"no {name} beside task.toml: write it") from error
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{name} can't be read as UTF-8: mend it") from error


def _test_files(table: _Table, test_patch: str, environment: Environment | None) -> tuple[str, ...]:
    """Those that test_patch touches, and those of pytest's ids."""
    tests = (*table.fail_to_pass, *table.pass_to_pass)
    files = {test.partition("::")[0] for test in tests if "::" in test}
    if environment is not None and environment.test_command:
        files = set()
    try:
        return tuple(sorted(files | set(kept_paths(test_patch.encode()) if test_patch else ())))
    except PatchError as error:
        raise Unusable(f"test_patch is refused: {error}") from error


def _name_of(values: Values) -> str | None:
    """The id, else the folder's name; None where not even that is known."""
    given = values.get("id")
    if isinstance(given, str) and given:
        return given
    return Path(str(values[FOLDER])).resolve().name if FOLDER in values else None


@cache
def _adapter() -> TypeAdapter[_Table]:
    # Inside: pydantic costs more to import than all of this module.
    from pydantic import TypeAdapter

    return TypeAdapter(_Table)


FOLDERS = Format(
    name="folder",
    about="folders with task.toml and repo/",
    fits=lambda values: FOLDER in values,
    name_of=_name_of,
    task_of=_task,
)
