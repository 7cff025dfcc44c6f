"""What a run has so far survives it; the tasks' file is merged whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from patchgym.datasets.mining import Decision, Dropped, MiningError, Store


def row(name: str) -> dict[str, Any]:
    return {"id": name, "provenance": {"commit": name}}


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_decisions_come_back_and_torn_lines_do_not(tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    task = Decision(commit="a", task=row("a"))
    drop = Decision(commit="b", dropped=Dropped(reason="flaky", detail="t"))
    with Store(out) as store:
        store.keep("1", task)
        store.keep("2", drop)
    decided = store.folder / "decided.jsonl"
    with decided.open("ab") as file:
        file.write(b'{"key": "3", "commit": "c", "dropp')
    with Store(out) as store:
        assert store.known("1") == task
        assert store.known("2") == drop
        assert store.known("3") is None
        store.keep("4", task)
    with Store(out) as store:
        assert store.known("4") == task
    for line in (b'{"key": "5", "commit": "e"}\n', b"[]\n", b"\xff\n"):
        decided.write_bytes(line)
        with Store(out) as store:
            assert store.known("5") is None


def test_merging(tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    order = {name: place for place, name in enumerate("abcd")}
    with Store(out) as store:
        store.merge([row("c"), row("a")], {"a", "b", "c"}, order)
        assert ids(out) == ["a", "c"]
        with out.open("a") as file:
            file.write('{"id": "mine"}\n')
        store.merge([row("d"), row("b")], {"b", "c", "d"}, order)
        assert ids(out) == ["mine", "a", "b", "d"]
        before = out.read_bytes()
        store.merge([row("d"), row("b")], {"b", "c", "d"}, order)
        assert out.read_bytes() == before
        store.merge([], {"b"}, order, "api")  # another subproject of the same repository
        assert out.read_bytes() == before
        assert store.count() == 4
        assert store.last is None
        store.finish("d")
        assert store.last == "d"
    assert sorted(os.listdir(tmp_path)) == ["tasks.jsonl", "tasks.jsonl.work"]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        Store(tmp_path / "t"),
        pytest.raises(MiningError, match=rf"process {os.getpid()} is mining"),
        Store(tmp_path / "t"),
    ):
        pass


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    out.write_text("hello\n")
    with pytest.raises(MiningError, match=r"tasks.jsonl:1: no task"), Store(out):
        pass
    assert out.read_text() == "hello\n"


@pytest.mark.parametrize("what", ["decided", "report"])
def test_a_full_disk_is_one_line(tmp_path: Path, what: str) -> None:
    decision = Decision(commit="a", task=row("a"))
    with Store(tmp_path / "t") as store:
        if what == "decided":
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, store._journal._file)
            os.close(full)
            with pytest.raises(MiningError, match="No space left on device: make room"):
                store.keep("1", decision)
        else:
            (store.folder / "report.json").mkdir()
            with pytest.raises(MiningError, match="can't be written"):
                store.write("report.json", "x")
