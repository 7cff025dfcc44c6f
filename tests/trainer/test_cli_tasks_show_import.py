"""`patchgym tasks show` and `tasks import` as a person runs them, piped and in a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path

import pytest
from shop_rows import Shop, parsers, shop

from patchgym.datasets.environment import Environment
from patchgym.datasets.task import Task, bundled_tasks, dump_tasks, load_tasks
from patchgym.trainer.cli.main import main

__all__ = ["parsers", "shop"]  # fixtures
START = "import sys; from patchgym.trainer.cli import main; sys.exit(main(sys.argv[1:]))"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RECIPES = """[[recipe]]
repo = "ada/shop"
test_command = "python3 -m pytest {test_files}"
"""


@pytest.fixture
def task() -> Task:
    return replace(
        bundled_tasks("train")[0],
        id="ada/shop-12",
        statement="A quarter off\nis `List<int>` off, not <b>bold</b>.\n\n```\nx <y\n```\n",
        repo="ada/shop",
        version="1.7",
        difficulty=0.75,
        environment=Environment(packages=("git", "make"), variables={"A": "b"}, timeout=60),
        provenance={"source": "hand", "seed": "7"},
        test_patch="diff --git a/t.py b/t.py\n--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-a\n+\x1b[2Jb\n",
        pass_to_pass=(),
    )


@pytest.fixture
def file(task: Task, tmp_path: Path) -> Path:
    dump_tasks([*bundled_tasks("heldout")[:3], task], tmp_path / "tasks.jsonl")
    return tmp_path / "tasks.jsonl"


def terminal(environment: Mapping[str, str], columns: int, *words: str) -> str:
    """What the command prints to a terminal of that width."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": str(columns)},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert child.wait() == 0, said
    return said.decode().replace("\r\n", "\n")


def test_a_list_piped_is_plain_and_whole(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", str(file)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0].split() == ["id", "repo", "F2P", "P2P", "patch", "difficulty", "statement"]
    last = [line for line in lines if line.startswith("ada/shop-12")][0]
    assert re.match(r"ada/shop-12 +ada/shop +\d+ +0 +\+1 -1 +0\.75 +A quarter off", last)
    assert "4 tasks" in lines
    assert not any("\x1b" in line for line in lines)


def test_one_piped_is_plain_and_whole(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", str(file), "ada/shop-12"]) == 0
    said = capsys.readouterr().out
    task = load_tasks(file)[-1]
    assert said.startswith(
        f"ada/shop-12  ada/shop@{task.base_commit[:12]}  train  difficulty 0.75\n"
    )
    for text in (
        task.statement.strip(),
        task.gold_patch,
        f"FAIL_TO_PASS  {len(task.fail_to_pass)}",
    ):
        assert text in said
    for name, value in (
        ("packages", "git"),
        ("variable", "A=b"),
        ("timeout", "60 s"),
        ("seed", "7"),
    ):
        assert re.search(rf"(?m)^{name} +{value}", said)
    assert "\x1b" not in said and "[2Jb" in said


def test_how_many_tests_are_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = load_tasks(file)[-1]
    assert main(["tasks", "show", str(file), task.id, "--tests", "1"]) == 0
    said = capsys.readouterr().out
    assert task.fail_to_pass[0] in said and f"and {len(task.fail_to_pass) - 1} more" in said
    assert main(["tasks", "show", str(file), task.id, "--tests", "-1"]) == 2


def test_show_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", str(file), "ada/shop-12", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["id"], row["difficulty"], row["environment"]["timeout"]) == (
        "ada/shop-12",
        0.75,
        60,
    )
    assert main(["tasks", "show", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


def test_an_unknown_task_is_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", str(file), "ada/shop-21"]) == 2
    assert "did you mean ada/shop-12?" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [80, 140])
def test_in_a_terminal(file: Path, columns: int, clean_environment: dict[str, str]) -> None:
    said = terminal(clean_environment, columns, "tasks", "show", str(file), "ada/shop-12")
    assert "\x1b[2J" not in said  # nothing of a task's reaches the terminal as a command
    plain = COLOUR.sub("", said)
    assert said != plain
    assert max(map(len, plain.split("\n"))) <= columns
    assert "is List<int> off, not <b>bold</b>." in plain
    assert "x <y" in plain and "```" not in plain
    listing = COLOUR.sub("", terminal(clean_environment, columns, "tasks", "show", str(file)))
    assert max(map(len, listing.split("\n"))) <= columns
    assert "ada/shop-12" in listing


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Mapping[str, object]]:
    code = main(["tasks", "import", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def rows(shop: Shop, tmp_path: Path) -> Path:
    """Two that can be used and three that can't, for two reasons."""
    given = [
        shop.lists(),
        shop.lists(instance_id="ada__shop-13"),
        *(shop.lists(instance_id=name, repo="ada/ship") for name in ("a", "b")),
        shop.lists(instance_id="c", patch=""),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in given))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_import(
    shop: Shop, rows: Path, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / f"tasks.{kind}"
    words = ["auto", str(rows), "--out", str(out), "--mirror", f"ada/shop={shop.path}"]
    code, said = run(words, capsys)
    assert code == 0
    assert said["taken_ids"] == ["ada__shop-12", "ada__shop-13"] == [t.id for t in load_tasks(out)]
    assert (said["rows"], said["taken"], said["formats"]) == (5, 2, {"swe-gym": 5})
    dropped = said["dropped"]
    assert isinstance(dropped, dict) and list(dropped) == ["a", "b", "c"]


def test_the_table_counts_by_reason(
    shop: Shop, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tasks.jsonl"
    words = ["swe-gym", str(rows), "--out", str(out), "--mirror", f"ada/shop={shop.path}"]
    assert main(["tasks", "import", *words]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.split("\n")]
    assert lines[0] == f"2 of 5 rows taken (swe-gym 5): {out}"
    assert re.match(r" +2  no mirror of ada/ship: clone it, and give --mirror .* +a$", lines[2])
    assert re.match(r" +1  no patch in it: every row needs one +c$", lines[3])


def test_nothing_taken_writes_nothing(
    rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(["auto", str(rows), "--out", str(tmp_path / "t.jsonl")], capsys)
    assert (code, said["out"], said["taken"]) == (1, None, 0)
    assert not (tmp_path / "t.jsonl").exists()


def test_recipes_and_made_repositories_lie_beside_the_file(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from shop_rows import git

    row = {
        "instance_id": "ada__shop.0123.x",
        "patch": git(shop.path, "diff", shop.fix, shop.base, "--", "shop"),
        "FAIL_TO_PASS": ["tests/test_price.py::test_quarter"],
        "PASS_TO_PASS": [],
        "image_name": "hub/shop",
        "repo": f"swesmith/ada__shop.{shop.fix[:8]}",
        "problem_statement": "A quarter off is nothing off",
    }
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    (tmp_path / "recipes.toml").write_text(RECIPES)
    folder = tmp_path / "out"
    folder.mkdir()
    code, _ = run(
        ["auto", str(tmp_path / "rows.json"), "--out", str(folder / "t.jsonl"),
         "--mirror", f"ada/shop={shop.path}", "--recipes", str(tmp_path / "recipes.toml")],
        capsys,
    )  # fmt: skip
    assert code == 0
    written = json.loads((folder / "t.jsonl").read_text())
    assert written["repository"].startswith("t-repositories/")
    moved = folder.rename(tmp_path / "moved")
    (task,) = load_tasks(moved / "t.jsonl")
    assert task.repository is not None and Path(task.repository).is_dir()
    assert task.environment is not None and task.environment.test_command.endswith("{test_files}")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["auto", "nowhere.jsonl"], "nowhere.jsonl: No such file or directory: give JSON Lines"),
        (["swe-benhc", "x"], "no format 'swe-benhc': did you mean swe-bench?"),
        (["auto", "x", "--mirror", "shop"], "--mirror shop: write OWNER/NAME=PATH"),
        (["auto", "x", "--mirror", "a/b=/nowhere"], "no folder /nowhere; clone the repository"),
        (["auto", "x", "--recipes", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["auto", "x", "--out", "/nowhere/t.jsonl"], "no folder /nowhere; make it"),
        (["auto", "x", "--out", "/tmp"], "--out /tmp: it is a folder; name a file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = [] if "--out" in words else ["--out", "t.jsonl"]
    assert main(["tasks", "import", *words, *out]) == 2
    said = capsys.readouterr().err.strip()
    assert text in said and "\n" not in said
