"""Tasks in a parquet file: one column a key; what is an object there is JSON text in its column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from .task import Task, TaskError

LISTS = ("fail_to_pass", "pass_to_pass", "test_files")
OBJECTS = ("files", "focus", "environment", "flaky", "provenance")
FROM_US = "give tasks that patchgym wrote, or convert them with patchgym tasks import"


def read_rows(path: Path) -> Iterator[tuple[int, str]]:
    """Number of every row from 1, and the row as a line of JSON.

    Raises TaskError (one line) when it is no parquet file, or pyarrow is not there.
    """
    arrow = _arrow(path)
    try:
        table = arrow.parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        reason = (str(error).splitlines() or ["unreadable"])[0][:200]
        raise TaskError(f"{path}: not parquet ({reason}): {FROM_US}") from error
    for number, row in enumerate(table.to_pylist(), 1):
        where = f"{path}:{number}"
        known = {
            key: _object(value, f"{where}: {key}") if key in OBJECTS else value
            for key, value in row.items()
            if value is not None
        }
        try:
            yield number, json.dumps(known, ensure_ascii=False)
        except TypeError as error:  # a date, bytes
            raise TaskError(f"{where}: {error}: {FROM_US}") from error


def parquet_bytes(rows: Sequence[Mapping[str, object]], path: Path) -> bytes:
    """The rows, as `dump_tasks` has them, as a parquet file's content.

    Raises TaskError, which names `path`, when pyarrow is not there.
    """
    arrow = _arrow(path)
    kinds = {**dict.fromkeys(LISTS, arrow.list_(arrow.string())), "difficulty": arrow.float64()}
    schema = arrow.schema(
        [(each.name, kinds.get(each.name, arrow.string())) for each in fields(Task)]
    )
    flat = [
        {
            key: json.dumps(value, ensure_ascii=False) if key in OBJECTS else value
            for key, value in row.items()
        }
        for row in rows
    ]
    sink = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.Table.from_pylist(flat, schema=schema), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _object(value: object, where: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise TaskError(f"{where}: not JSON ({error.msg}): {FROM_US}") from error


def _arrow(path: Path) -> Any:
    """Pyarrow with its parquet part."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TaskError(
            f"{path}: parquet needs pyarrow, which is not there: "
            "pip install 'patchgym[tasks]', or use a .jsonl file"
        ) from error
    return pyarrow
