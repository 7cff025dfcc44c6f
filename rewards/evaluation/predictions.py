"""Predictions: SWE-bench's format, as JSON Lines, a JSON list or a JSON map, and two built-in ones.

A row has `instance_id`, `model_patch` and `model_name_or_path`. A row that can't be used costs its
own task; a file that can't be parsed is refused as a whole, because nobody knows what is missing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchgym.datasets.task import Task

from .errors import EvaluationError

BUILT_IN = ("gold", "empty")
_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One candidate patch."""

    patch: bytes
    """As it came; empty for null."""
    model: str = ""
    """Who made it; empty when the file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """The candidates of one file, by task id."""

    by_task: Mapping[str, Prediction]
    broken: Mapping[str, str] = field(default_factory=dict)
    """Ids whose prediction can't be used, and why."""
    notes: tuple[str, ...] = ()
    """Rows that name no task, and tasks that are named twice: one line each, with the place."""

    @property
    def ids(self) -> frozenset[str]:
        """Every id that the file names."""
        return frozenset(self.by_task) | frozenset(self.broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    key: str | None
    """The id that a map gives the row."""
    value: object


class _Object(dict[str, object]):
    """A JSON object that knows which of its keys came more than once."""

    repeated: frozenset[str] = frozenset()

    @classmethod
    def of(cls, pairs: list[tuple[str, object]]) -> _Object:
        made = cls(pairs)
        if len(made) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            made.repeated = frozenset(name for name in made if counts[name] > 1)
        return made


def built_in(name: str, tasks: Sequence[Task]) -> Predictions:
    """`gold`: each task's own fix; `empty`: no change at all."""
    if name not in BUILT_IN:
        raise EvaluationError(f"no built-in predictions {name!r}: there are gold, empty")
    patches = {task.id: task.gold_patch.encode() if name == "gold" else b"" for task in tasks}
    return Predictions(
        by_task={each: Prediction(patch=patch, model=name) for each, patch in patches.items()}
    )


def read_predictions(path: Path) -> Predictions:
    """Read a file of predictions. Blocking. Raises EvaluationError, with the line, on no JSON.

    Of several rows for one task the last counts, as in SWE-bench, and a note says so.
    """
    by_task: dict[str, Prediction] = {}
    broken: dict[str, str] = {}
    notes: list[str] = []
    for row in _rows(path):
        task_id, problem = _task_id(row)
        if task_id is None:
            notes.append(f"{row.where}: {problem}; ignored")
            continue
        if by_task.pop(task_id, None) is not None or broken.pop(task_id, None) is not None:
            notes.append(f"{row.where}: {task_id} is predicted again; the last one counts")
        found = problem or _prediction(row.value)
        if isinstance(found, Prediction):
            by_task[task_id] = found
        else:
            broken[task_id] = f"{row.where}: {found}"
    return Predictions(by_task=by_task, broken=broken, notes=tuple(notes))


def _rows(path: Path) -> Iterator[_Row]:
    text = _text(path)
    try:
        document = _parse(text)
    except ValueError as error:
        if path.suffix not in _LINES and not _is_json(text.lstrip().partition("\n")[0]):
            raise _unreadable(path, error, getattr(error, "lineno", 1)) from error
        yield from _lines(path, text)
        return
    yield from _document(path, document)


def _lines(path: Path, text: str) -> Iterator[_Row]:
    # Not splitlines(): a JSON string may hold U+2028 and the like unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield _Row(where=f"{path}:{number}", key=None, value=_parse(line))
            except ValueError as error:
                raise _unreadable(path, error, number) from error


def _document(path: Path, document: object) -> Iterator[_Row]:
    if isinstance(document, list):
        for number, value in enumerate(document, 1):
            yield _Row(where=f"{path}: entry {number}", key=None, value=value)
    elif isinstance(document, _Object) and _is_row(document):
        yield _Row(where=f"{path}:1", key=None, value=document)
    elif isinstance(document, _Object):
        for key, value in document.items():
            if key in document.repeated:
                # The parser kept the last; the row before it is only there to be named.
                yield _Row(where=f"{path}: {key}", key=key, value=None)
            yield _Row(where=f"{path}: {key}", key=key, value=value)
    else:
        raise EvaluationError(f"{path}: neither a list nor a map: write SWE-bench's predictions")


def _is_row(document: Mapping[str, object]) -> bool:
    """One prediction, rather than a map of them: nobody calls a task `model_patch`."""
    return isinstance(document.get("instance_id"), str) or "model_patch" in document


def _task_id(row: _Row) -> tuple[str | None, str]:
    """The task's id, and what is wrong with the row so far."""
    if row.key is not None:
        inner = row.value.get("instance_id") if isinstance(row.value, dict) else None
        if inner not in (None, row.key):
            return row.key, f"its instance_id is {inner!r}: make them agree"
        return row.key, ""
    if not isinstance(row.value, dict):
        return None, f"{_kind(row.value)} where an object should be"
    found = row.value.get("instance_id")
    if not isinstance(found, str) or not found:
        return None, "no key instance_id" if found is None else "instance_id is no text"
    return found, ""


def _prediction(value: object) -> Prediction | str:
    """The prediction, or what is wrong with it."""
    model: object = ""
    if isinstance(value, dict):
        if "model_patch" not in value:
            return "no key model_patch: add it, null for no patch"
        model, value = value.get("model_name_or_path"), value["model_patch"]
    if value is None:
        value = ""
    if not isinstance(value, str):
        return f"model_patch is {_kind(value)}: make it text, or null for no patch"
    try:
        # Bytes that were no UTF-8 come as surrogates from programs that keep them so.
        patch = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "model_patch holds half a surrogate pair, which no text has: write it anew"
    return Prediction(patch=patch, model=model if isinstance(model, str) else "")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(getattr(value, "__class__", type), "a number")


def _text(path: Path) -> str:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise EvaluationError(
            f"{path}: {error.strerror}: give a file of predictions, gold or empty"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise EvaluationError(f"{path}:{line}: not UTF-8: write JSON as UTF-8") from error
    if not text.strip():
        raise EvaluationError(f"{path}: nothing in it: write SWE-bench's predictions")
    return text


def _parse(text: str) -> object:
    """Like json.loads, but nesting without end is a ValueError too."""
    try:
        return json.loads(text, object_pairs_hook=_Object.of)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _is_json(text: str) -> bool:
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def _unreadable(path: Path, error: ValueError, line: int) -> EvaluationError:
    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    place = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    return EvaluationError(
        f"{path}:{line}: not JSON ({reason}{place}): mend the line or leave it out"
    )
