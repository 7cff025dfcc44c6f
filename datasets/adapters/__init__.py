"""Tasks from everyone's rows: one module a family of formats, each known by its name.

rows of a file, of Hugging Face's datasets, of folders ── a Format ──► tasks, and reasons by id
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchgym.datasets.cache import repositories_dir
from patchgym.datasets.recipes import Recipe
from patchgym.datasets.task import Task, TaskError, load_tasks

from .base import Format, Sources, Unusable, Values, read_all
from .folder import FOLDERS
from .multi import MULTI_SWE_BENCH
from .nemotron import nemotron
from .r2e import R2E_GYM
from .rebench import SWE_REBENCH
from .smith import SWE_SMITH
from .source import open_rows
from .swebench import SWE_BENCH, SWE_BENCH_LIVE, SWE_GYM

__all__ = [
    "AUTO",
    "FORMATS",
    "OWN",
    "Format",
    "Imported",
    "Sources",
    "Unusable",
    "detect",
    "find_format",
    "import_tasks",
]

AUTO = "auto"
OWN = "patchgym"
_WITHIN = (MULTI_SWE_BENCH, R2E_GYM, SWE_SMITH, SWE_REBENCH, SWE_BENCH_LIVE, SWE_GYM, SWE_BENCH)
FORMATS: Mapping[str, Format] = {form.name: form for form in (FOLDERS, nemotron(_WITHIN), *_WITHIN)}
"""By name, in the order in which `detect` asks them: the one that asks for least is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of a source."""

    tasks: tuple[Task, ...]
    """The usable ones, in order."""
    reasons: Mapping[str, str]
    """Why each other row can't be used, by its id, or by its place where it has none."""
    formats: Mapping[str, int] = field(default_factory=dict)
    """How many rows were read as which format."""


def detect(values: Values) -> Format | None:
    """The format that a row looks like."""
    return next((form for form in FORMATS.values() if form.fits(values)), None)


def find_format(name: str) -> Format:
    """The format of that name; TaskError names the nearest."""
    import difflib

    if name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(name, [*FORMATS, AUTO, OWN], n=1, cutoff=0.5)
    known = ", ".join([AUTO, *FORMATS, OWN])
    raise TaskError(f"no format {name!r}: {f'did you mean {near[0]}?' if near else f'use {known}'}")


def import_tasks(
    name: str,
    source: str,
    *,
    recipes: Sequence[Recipe],
    mirrors: Mapping[str, Path],
    repositories: Path | None = None,
) -> Imported:
    """All tasks of a source: a file, a folder, or `hf:NAME[:SPLIT]`.

    `name` is a format's, `auto` to ask each row what it looks like, or `patchgym` for tasks of our
    own. `repositories` is as `Format.read` has it. Raises TaskError (one line) when the source
    can't be read, or has an id twice. Blocking.
    """
    form = None if name in (AUTO, OWN) else find_format(name)
    if name == OWN:
        return _own(source)
    rows = open_rows(source)
    if name == AUTO and all(_is_own(row.values) for row in rows):
        return _own(source)
    forms = [(row, form or detect(row.values)) for row in rows]
    tasks, reasons = read_all(
        forms,
        Sources(
            recipes=recipes,
            mirrors=mirrors,
            repositories=repositories or repositories_dir() / "imported",
        ),
    )
    counts = Counter(each.name if each else "unknown" for _, each in forms)
    return Imported(tasks=tasks, reasons=reasons, formats=dict(counts))


def _is_own(values: Values) -> bool:
    return all(key in values for key in ("id", "statement", "gold_patch", "fail_to_pass"))


def _own(source: str) -> Imported:
    tasks = load_tasks(source)
    return Imported(tasks=tasks, reasons={}, formats={OWN: len(tasks)})
