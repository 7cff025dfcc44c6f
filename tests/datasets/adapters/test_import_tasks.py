"""From a source to tasks: every kind of file, mixed formats, the hub, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from shop_rows import RECIPE, Shop

from patchgym.datasets.adapters import FORMATS, Imported, find_format, import_tasks
from patchgym.datasets.rows import read_rows
from patchgym.datasets.task import TaskError, bundled_tasks, dump_tasks

HUGGING_FACE = getattr(importlib.util.find_spec("datasets"), "origin", None) is not None


def read(shop: Shop, source: object, form: str = "auto") -> Imported:
    return import_tasks(form, str(source), recipes=[RECIPE], mirrors={"ada/shop": shop.path})


def write(path: Path, *rows: dict[str, Any]) -> Path:
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_every_kind_of_file(shop: Shop, name: str, tmp_path: Path) -> None:
    rows = [shop.lists(), shop.lists(instance_id="ada__shop-13")]
    found = read(shop, write(tmp_path / name, *rows))
    assert [task.id for task in found.tasks] == ["ada__shop-12", "ada__shop-13"]
    assert found.formats == {"swe-gym": 2}


def test_each_row_by_its_own_format(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write(path, shop.classic(), shop.lists(instance_id="a"), {"question": "?", "answer": "!"})
    path.write_text(path.read_text() + "[]\n")
    found = read(shop, path)
    assert found.formats == {"swe-bench": 1, "swe-gym": 1, "unknown": 2}
    assert found.reasons == {
        f"{path}:3": "no format that is known here (its keys: question, answer): name the format",
        f"{path}:4": "not a JSON object: write one a row",
    }


def test_a_format_that_is_named_is_used(shop: Shop, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", shop.lists())
    found = read(shop, path, "swe-rebench")
    assert found.formats == {"swe-rebench": 1}
    with pytest.raises(TaskError, match="no format 'swe-gim': did you mean swe-gym"):
        read(shop, path, "swe-gim")
    with pytest.raises(TaskError, match="no format 'x': use auto, folder, nemotron"):
        read(shop, path, "x")


@pytest.mark.parametrize("name", ["own.jsonl", "own.parquet"])
@pytest.mark.parametrize("form", ["auto", "patchgym"])
def test_tasks_of_our_own(shop: Shop, name: str, form: str, tmp_path: Path) -> None:
    tasks = bundled_tasks("heldout")
    dump_tasks(tasks, tmp_path / name)
    found = read(shop, tmp_path / name, form)
    assert (found.tasks, found.formats) == (tasks, {"patchgym": len(tasks)})


def test_an_id_comes_once(shop: Shop, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", shop.lists(), shop.classic())
    with pytest.raises(TaskError, match=r"rows.jsonl:2: ada__shop-12 is there twice: take one out"):
        read(shop, path)


def test_each_format_reads_by_itself(shop: Shop, tmp_path: Path) -> None:
    rows = read_rows(write(tmp_path / "rows.jsonl", shop.lists(), {"instance_id": None}))
    tasks, reasons = find_format("swe-gym").read(rows, recipes=[], mirrors={"ada/shop": shop.path})
    assert [task.id for task in tasks] == ["ada__shop-12"]
    assert reasons == {f"{tmp_path}/rows.jsonl:2": "no id in it: add it"}
    assert [*FORMATS][-1] == "swe-bench"  # it asks for least


def test_a_file_that_is_not_there(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="No such file"):
        read(shop, tmp_path / "rows.jsonl")


@pytest.mark.skipif(HUGGING_FACE, reason="Hugging Face's datasets is installed")
def test_the_hub_is_never_required(shop: Shop) -> None:
    with pytest.raises(
        TaskError, match="hf:SWE-Gym/SWE-Gym is read by Hugging Face's datasets, whi"
    ):
        read(shop, "hf:SWE-Gym/SWE-Gym")


@pytest.mark.skipif(not HUGGING_FACE, reason="Hugging Face's datasets is not installed")
def test_a_local_set_as_the_hub_s(shop: Shop, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "set").mkdir()
    write(tmp_path / "set/train.jsonl", shop.lists())
    for name in (f"hf:{tmp_path}/set", f"hf:{tmp_path}/set:train"):
        (task,) = read(shop, name).tasks
        assert task.id == "ada__shop-12"
    with pytest.raises(TaskError, match="give a file that you have instead"):
        read(shop, f"hf:{tmp_path}/set:dev")
