"""Files of tasks: parquet beside JSON Lines, the JSON schema, the difficulty."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from patchgym.datasets.environment import Environment
from patchgym.datasets.task import (
    Task,
    TaskError,
    bundled_tasks,
    dump_tasks,
    load_tasks,
    task_schema,
)

jsonschema = pytest.importorskip("jsonschema")
KINDS = ["jsonl", "parquet"]


@pytest.fixture
def full() -> Task:
    """With something in every field that can stand beside the others."""
    return replace(
        bundled_tasks("train")[0],
        id="odd/one",
        statement='\u2028 é \\ " \n',
        image="image:1",
        environment=Environment(packages=("git",), variables={"A": "b"}, timeout=3.5),
        repo="ada/shop",
        version="1.7",
        flaky={"test_x": 0.25},
        difficulty=0.75,
        provenance={"seed": "0"},
        test_patch="diff --git a/t.py b/t.py\n",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(full: Task, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    tasks = (*bundled_tasks("heldout"), full)
    path = tmp_path / f"tasks.{kind}"
    dump_tasks(tasks, path)
    assert load_tasks(path) == tasks
    assert [task.content for task in load_tasks(path)] == [task.content for task in tasks]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", KINDS)
def test_a_repository_is_relative_to_the_file(full: Task, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    dump_tasks([replace(full, files=None, repository="repos/app")], tmp_path / f"tasks.{kind}")
    (task,) = load_tasks(tmp_path / f"tasks.{kind}")
    assert task.repository == str(tmp_path / "repos/app")


def test_a_task_without_test_files_comes_back(full: Task, tmp_path: Path) -> None:
    task = replace(
        full, files=None, focus=None, test_files=(),
        environment=Environment(test_command="pytest"),
    )  # fmt: skip
    dump_tasks([task], tmp_path / "tasks.jsonl")
    assert load_tasks(tmp_path / "tasks.jsonl") == (task,)


def test_parquet_can_be_read_by_others(full: Task, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    dump_tasks([full], tmp_path / "tasks.parquet")
    (row,) = parquet.read_table(tmp_path / "tasks.parquet").to_pylist()
    assert row["fail_to_pass"] == list(full.fail_to_pass)
    assert row["difficulty"] == 0.75
    assert json.loads(row["files"]) == full.files
    assert row["repository"] is None


def test_parquet_that_is_none_of_ours(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    path.write_text("{}")
    with pytest.raises(TaskError, match=r"rows.parquet: not parquet \("):
        load_tasks(path)
    parquet.write_table(pyarrow.Table.from_pylist([{"question": "?"}]), path)
    with pytest.raises(TaskError, match="rows.parquet:1: unknown key question: "):
        load_tasks(path)
    parquet.write_table(pyarrow.Table.from_pylist([{"files": "{"}]), path)
    with pytest.raises(TaskError, match="rows.parquet:1: files: not JSON"):
        load_tasks(path)
    parquet.write_table(pyarrow.Table.from_pylist([{"id": b"x"}]), path)
    with pytest.raises(TaskError, match="rows.parquet:1: Object of type bytes"):
        load_tasks(path)


def test_without_pyarrow_the_extra_is_named(
    full: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as where it is not installed
    path = tmp_path / "tasks.parquet"
    for do in (lambda: load_tasks(path), lambda: dump_tasks([full], path)):
        with pytest.raises(TaskError, match=r"pip install 'patchgym\[tasks\]', or use a .jsonl"):
            do()
    assert not path.exists()


def test_what_is_dumped_fits_the_schema(full: Task, tmp_path: Path) -> None:
    schema = task_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    dump_tasks((*bundled_tasks("train"), *bundled_tasks("heldout"), full), tmp_path / "t.jsonl")
    for line in (tmp_path / "t.jsonl").read_text().split("\n")[:-1]:
        validator.validate(json.loads(line))
    assert json.dumps(schema)  # plain values alone


@pytest.mark.parametrize(
    "change",
    [
        {"statment": "x"},
        {"environment": {"bases": "x"}},
        {"difficulty": 1.5},
        {"difficulty": "hard"},
        {"fail_to_pass": []},
        {"fail_to_pass": "test_a"},
        {"base_commit": "HEAD"},
        {"flaky": {"test_a": 2}},
    ],
)
def test_the_schema_refuses_what_loading_refuses(
    full: Task, change: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    dump_tasks([full], path)
    row = json.loads(path.read_text()) | change
    assert list(jsonschema.Draft202012Validator(task_schema()).iter_errors(row))
    if "flaky" not in change:
        path.write_text(json.dumps(row))
        with pytest.raises(TaskError):
            load_tasks(path)


@pytest.mark.parametrize("share", [0, 0.0, 0.5, 1])
def test_a_difficulty_is_a_share(full: Task, share: float, tmp_path: Path) -> None:
    dump_tasks([replace(full, difficulty=share)], tmp_path / "t.jsonl")
    assert load_tasks(tmp_path / "t.jsonl")[0].difficulty == share


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_another_number_is_refused(full: Task, share: float) -> None:
    with pytest.raises(TaskError, match="is no share: give 0 to 1"):
        replace(full, difficulty=share)


def test_the_difficulty_is_not_of_the_content(full: Task) -> None:
    assert replace(full, difficulty=None).content == full.content


def test_an_unknown_key_of_an_environment_is_named(full: Task, tmp_path: Path) -> None:
    dump_tasks([full], tmp_path / "t.jsonl")
    row = json.loads((tmp_path / "t.jsonl").read_text())
    row["environment"]["bse"] = "x"
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskError, match="unknown key environment.bse: did you mean environment.ba"):
        load_tasks(tmp_path / "t.jsonl")
