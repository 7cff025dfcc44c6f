"""A task: one issue in one repository at one commit, the tests that judge it, and its fix."""

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from patchgym.sandbox.errors import PatchgymError

from .environment import Environment
from .journal import write_whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Split = Literal["train", "heldout"]

_BUNDLED = Path(__file__).parent / "bundled" / "tasks.jsonl"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_COMMIT = re.compile(r"[0-9a-f]{40}")
PARQUET = ".parquet"


class TaskError(PatchgymError, ValueError):
    """A task, or a file of tasks, that can't be used; the text is one line and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """Where to look: the one function that a single-function task is about."""

    path: str
    """File, relative to the repository's root, with forward slashes."""
    function: str
    """Name of the function inside that file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One repair task. Building one raises TaskError when its parts contradict each other."""

    id: str
    """Unique name: letters, digits, `.`, `_`, `-`, and `/` between parts."""
    statement: str
    """What the policy is told, in prose."""
    base_commit: str
    """Commit (40 hex digits) that every attempt starts from."""
    gold_patch: str
    """Git diff against base_commit that solves the task; never shown to the policy."""
    fail_to_pass: tuple[str, ...]
    """Pytest node ids that fail at base_commit and pass with the gold patch; at least one."""
    pass_to_pass: tuple[str, ...] = ()
    """Pytest node ids that pass at base_commit and must go on passing."""
    test_files: tuple[str, ...]
    """Trusted files, put back as they are at base_commit before a verdict."""
    files: Mapping[str, str] | None = None
    """The whole repository as path -> text, for a bundled task; None when `repository` is set."""
    repository: str | None = None
    """Folder of an existing git repository; None when `files` is set."""
    focus: Focus | None = None
    """The function to mend, where the task is about a single one."""
    test_patch: str = ""
    """Git diff with the hidden tests, on top of base_commit; never shown to the policy. The paths
    that it touches are trusted files too."""
    image: str | None = None
    """Image tag to run in; None means the environment's, or else the pool's own."""
    environment: Environment | None = None
    """How its tests are run; None: by pytest in the pool's own image."""
    repo: str | None = None
    """Name of the repository, owner/name, for recipes, mirrors and splits."""
    version: str | None = None
    """The repository's version at base_commit, for recipes."""
    flaky: Mapping[str, float] = field(default_factory=dict)
    """Tests known to be flaky, and the share of their runs that did not pass; a verdict sets them
    aside."""
    split: str = "train"
    """Which part of the data it belongs to; the bundled tasks have `train` and `heldout`."""
    difficulty: float | None = None
    """Share of attempts that fail at it, 0 (all solve it) to 1 (none does); None: not known. Whose
    attempts, and whether they were made or estimated, is for `provenance` to say."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """How the task came about: generator, seed, source."""

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise TaskError(problem)

    @property
    def content(self) -> str:
        """Sha256 hex digest of what makes the task: unchanged by its id, split or location."""
        parts = (
            self.statement,
            self.base_commit,
            self.gold_patch,
            self.fail_to_pass,
            self.pass_to_pass,
            self.test_files,
            *((self.test_patch,) if self.test_patch else ()),
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def tests(self) -> tuple[str, ...]:
        """All node ids of a verdict, FAIL_TO_PASS first."""
        return self.fail_to_pass + self.pass_to_pass


def load_tasks(path: str | Path) -> tuple[Task, ...]:
    """The tasks of a file in order: parquet by its name's end, else JSON Lines.

    A relative `repository` is relative to the file. Raises TaskError (one line, `file:line: what:
    what to do`; in parquet the number of the row) for anything it can't use.
    """
    path = Path(path)
    if path.suffix == PARQUET:
        from .parquet import read_rows as rows_of
    else:
        rows_of = _json_rows
    tasks: dict[str, Task] = {}
    for number, line in rows_of(path):
        task = _parse(line, f"{path}:{number}", path.parent)
        if task.id in tasks:
            raise TaskError(f"{path}:{number}: {task.id} is there twice: give it another id")
        tasks[task.id] = task
    if not tasks:
        raise TaskError(f"{path}: no tasks in it: write one JSON object a line")
    return tuple(tasks.values())


def dump_tasks(tasks: Iterable[Task], path: str | Path) -> None:
    """Write tasks, the whole file or nothing: parquet by its name's end, else JSON Lines.

    Default values stay out. Raises TaskError when parquet can't be written for want of its library.
    """
    path = Path(path)
    rows = [task_row(task) for task in tasks]
    if path.suffix == PARQUET:
        from .parquet import parquet_bytes

        data = parquet_bytes(rows, path)
    else:
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    write_whole(path, data)


def task_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of one task as `dump_tasks` writes it.

    It knows types and keys. That a task's parts fit each other is for `Task` to check.
    """
    schema = _adapter().json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        part["additionalProperties"] = False
    share = {"minimum": 0, "maximum": 1}
    schema["properties"]["difficulty"]["anyOf"][0].update(share)
    schema["properties"]["flaky"]["additionalProperties"].update(share)
    schema["properties"]["fail_to_pass"]["minItems"] = 1
    schema["properties"]["base_commit"]["pattern"] = f"^{_COMMIT.pattern}$"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def task_row(task: Task) -> dict[str, object]:
    """A task as JSON holds it; default values stay out."""
    return {
        item.name: value
        for item, value in zip(fields(task), asdict(task).values(), strict=True)
        if not (value is None or value in ("", (), {})) or item.name in ("split", "test_files")
    }


def _json_rows(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise TaskError(f"{path}: {reason}: give a JSON Lines file of tasks") from error
    # Not splitlines(): a JSON string may hold U+2028 and the like unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def bundled_tasks(split: Split) -> tuple[Task, ...]:
    """The repair tasks that come with patchgym; no function is in both splits."""
    return tuple(task for task in _all_bundled() if task.split == split)


@cache
def _all_bundled() -> tuple[Task, ...]:
    return load_tasks(_BUNDLED)


@cache
def _adapter() -> "TypeAdapter[Task]":
    # Inside: pydantic costs more to import than all of this module.
    from pydantic import TypeAdapter

    return TypeAdapter(Task)


def _parse(line: str, where: str, folder: Path) -> Task:
    from pydantic import ValidationError

    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        what = f"{error.msg} at column {error.colno}"
        raise TaskError(f"{where}: not JSON ({what}): write one task a line") from error
    if not isinstance(row, dict):
        raise TaskError(f"{where}: not a JSON object: write one task a line")
    _refuse_unknown(row, Task, where, "")
    for key, part in (("focus", Focus), ("environment", Environment)):
        if isinstance(row.get(key), dict):
            _refuse_unknown(row[key], part, where, f"{key}.")
    try:
        task = _adapter().validate_json(line, strict=True)
    except ValidationError as error:
        raise TaskError(f"{where}: {_first_problem(error)}") from error
    except TaskError as error:
        raise TaskError(f"{where}: {error}") from error
    if task.repository is None:
        return task
    return replace(task, repository=str(folder.resolve() / task.repository))


def _refuse_unknown(
    row: Mapping[str, object],
    type_: type[Task] | type[Focus] | type[Environment],
    where: str,
    prefix: str,
) -> None:
    known = [item.name for item in fields(type_)]
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            advice = f"did you mean {prefix}{near[0]}?" if near else f"use {', '.join(known)}"
            raise TaskError(f"{where}: unknown key {prefix}{key}: {advice}")


def _first_problem(error: "ValidationError") -> str:
    first = error.errors()[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), TaskError):
        return str(cause)
    key = ".".join(str(part) for part in first["loc"])
    if first["type"].startswith("missing"):
        return f"no key {key}: add it"
    found = type(first["input"]).__name__
    return f"{key} has the wrong type: {first['msg'].lower()}, not {found}"


def _problems(task: Task) -> Iterable[str]:
    """Every contradiction inside a task, as `what: what to do`."""
    if not _ID.fullmatch(task.id):
        yield f"id {task.id!r} is no plain name: use letters, digits, . _ - and / between parts"
    if not task.statement.strip():
        yield f"{task.id}: the statement is empty: say what is wrong"
    if task.files is not None and task.repository is not None:
        yield f"{task.id}: give exactly one of files and repository"
    if task.files is None and task.repository is None and task.image is None:
        yield f"{task.id}: give files, or a repository, or an image that holds one"
    if not _COMMIT.fullmatch(task.base_commit):
        yield f"{task.id}: base_commit {task.base_commit!r} is no full commit: give 40 hex digits"
    if not re.search(r"(?m)^diff --git ", task.gold_patch) or not task.gold_patch.endswith("\n"):
        yield f"{task.id}: gold_patch is no git diff: paste the whole output of `git diff`"
    if task.difficulty is not None and not 0 <= task.difficulty <= 1:
        yield f"{task.id}: difficulty {task.difficulty} is no share: give 0 to 1"
    yield from _test_problems(task)
    for path in (*task.test_files, *(task.files or ()), *((task.focus,) if task.focus else ())):
        path = path.path if isinstance(path, Focus) else path
        if not _plain(path):
            yield f"{task.id}: {path!r} leaves the repository: use a path relative to its root"


def _test_problems(task: Task) -> Iterable[str]:
    if not task.fail_to_pass:
        yield f"{task.id}: fail_to_pass is empty: name a test that the gold patch turns green"
    if not task.test_files and not task.test_patch:
        yield f"{task.id}: test_files is empty: name the files that hold the tests"
    seen: set[str] = set()
    by_file = task.environment is None or not task.environment.test_command
    for test in task.tests:
        path, separator, _ = test.partition("::")
        if by_file and (not separator or path not in task.test_files):
            yield f"{task.id}: test {test} is in no test file: write FILE::NAME, FILE in test_files"
        if not test.strip():
            yield f"{task.id}: a test id is empty: remove it"
        if test in seen:
            yield f"{task.id}: test {test} is named twice: remove one"
        seen.add(test)
    for path in task.test_files if task.files is not None else ():
        if path not in (task.files or {}):
            yield f"{task.id}: test file {path} is not in files: add it"


def _plain(path: str) -> bool:
    parts = PurePosixPath(path).parts
    odd = any(part in ("..", "/") or part.lower() == ".git" for part in parts)
    return bool(parts) and not odd and str(PurePosixPath(path)) == path and "\0" not in path
