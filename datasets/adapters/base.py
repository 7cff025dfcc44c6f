"""What every format of rows has in common: rows go in, tasks and reasons come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.recipes import Recipe
from patchgym.datasets.rows import Row
from patchgym.datasets.task import Task, TaskError

from .diffs import quoted_hunk

Values = Mapping[str, Any]


class Unusable(Exception):
    """Why a row can't be used: one line, `what: what to do`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a row may refer to."""

    recipes: Sequence[Recipe]
    """Environments by repository, for rows that bring none."""
    mirrors: Mapping[str, Path]
    """Local repositories by owner/name."""
    repositories: Path
    """Folder for the repositories that have to be made, where a commit exists nowhere yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of rows."""

    name: str
    """What `patchgym tasks import` calls it."""
    about: str
    """Whose rows, in a few words."""
    fits: Callable[[Values], bool]
    """Whether a row looks like it."""
    name_of: Callable[[Values], str | None]
    """A row's id, where it has one."""
    task_of: Callable[[Row, Sources], Task]
    """The task of a row; raises Unusable."""

    def read(
        self,
        rows: Sequence[Row],
        *,
        recipes: Sequence[Recipe],
        mirrors: Mapping[str, Path],
        repositories: Path | None = None,
    ) -> tuple[tuple[Task, ...], Mapping[str, str]]:
        """The usable tasks in order, and by id the reason for every row that is not.

        `repositories` is the folder for repositories that have to be made (default: in patchgym's
        cache). A row without an id goes by `file:line`. Raises TaskError when an id is there twice.
        Blocking.
        """
        folder = repositories or repositories_dir() / "imported"
        sources = Sources(recipes=recipes, mirrors=mirrors, repositories=folder)
        return read_all([(row, self) for row in rows], sources)


def read_all(
    rows: Sequence[tuple[Row, Format | None]], sources: Sources
) -> tuple[tuple[Task, ...], Mapping[str, str]]:
    """As `Format.read`, each row by its own format; None is one that no format fits."""
    tasks: dict[str, Task] = {}
    reasons: dict[str, str] = {}
    for row, form in rows:
        name = (form.name_of(row.values) if form else None) or row.where
        if name in tasks or name in reasons:
            raise TaskError(f"{row.where}: {name} is there twice: take one out")
        try:
            tasks[name] = _checked(row, form, sources)
        except Unusable as reason:
            reasons[name] = str(reason)
        except TaskError as error:
            reasons[name] = str(error).removeprefix(f"{name}: ")
    return tuple(tasks.values()), reasons


def _checked(row: Row, form: Format | None, sources: Sources) -> Task:
    if row.problem:
        raise Unusable(row.problem)
    if form is None:
        keys = ", ".join(list(row.values)[:8]) or "none"
        raise Unusable(f"no format that is known here (its keys: {keys}): name the format")
    if form.name_of(row.values) is None:
        raise Unusable("no id in it: add it")
    task = form.task_of(row, sources)
    try:
        "\n".join((task.statement, task.gold_patch, task.test_patch, *task.tests)).encode()
    except UnicodeEncodeError as error:
        raise Unusable("half a character (a lone surrogate) is in its text: mend it") from error
    if quoted_hunk(task.statement, task.gold_patch):
        raise Unusable("the statement holds the gold patch: cut it out")
    return task
