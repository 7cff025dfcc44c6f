"""Rows of a file of tasks, whatever its format: JSON Lines, a JSON list, parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .task import TaskError

READABLE = "give JSON Lines, a JSON list or parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row, read as far as it can be."""

    where: str
    """`file:line`; in a list and in parquet the number of the row, from 1."""
    values: Mapping[str, Any]
    """By column; empty when `problem` says why."""
    problem: str = ""
    """Why it can't be read."""


def read_rows(path: Path) -> tuple[Row, ...]:
    """All rows of a file, the unreadable ones too.

    Raises TaskError (one line) when the file can't be read at all, has no rows, or is parquet and
    the extra that reads it is not installed.
    """
    rows = tuple(_parquet(path) if path.suffix == ".parquet" else _json(path))
    if not rows:
        raise TaskError(f"{path}:1: no rows in it: {READABLE}")
    return rows


def _json(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise TaskError(f"{path}: {reason}: {READABLE}") from error
    if text.lstrip().startswith("["):
        yield from _list(path, text)
        return
    # Not splitlines(): a JSON string may hold U+2028 and the like unescaped.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _line(line, f"{path}:{number}")


def _list(path: Path, text: str) -> Iterator[Row]:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"{error.msg} at column {error.colno}"
        raise TaskError(f"{path}:{error.lineno}: not JSON ({what}): mend it") from error
    for number, each in enumerate(values, 1):
        yield _row(each, f"{path}:{number}")


def _line(line: str, where: str) -> Row:
    try:
        return _row(json.loads(line), where)
    except json.JSONDecodeError as error:
        what = f"not JSON ({error.msg} at column {error.colno}): write one row a line"
        return Row(where=where, values={}, problem=what)


def _row(values: object, where: str) -> Row:
    if not isinstance(values, dict):
        return Row(where=where, values={}, problem="not a JSON object: write one a row")
    return Row(where=where, values=values)


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise TaskError(
            f"{path}: parquet is read by pyarrow, which is not there: "
            "pip install 'patchgym[swebench]', or give JSON Lines"
        ) from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0][:200]
        raise TaskError(f"{path}: not parquet ({reason}): {READABLE}") from error
    for number, values in enumerate(table.to_pylist(), 1):
        yield _row(values, f"{path}:{number}")
