"""SWE-bench's rows: classic ones and those of 5.x, in every format, and bad rows by their names."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.datasets.environment import Environment
from patchgym.datasets.recipes import Recipe
from patchgym.datasets.rows import read_rows
from patchgym.datasets.swebench import (
    END,
    SCRIPT_LIMIT,
    SCRIPT_VARIABLE,
    START,
    kept_paths,
    read_task_file,
    test_part,
)
from patchgym.datasets.task import Task, TaskError, bundled_tasks, dump_tasks, load_tasks
from patchgym.sandbox import PatchError
from patchgym.sandbox.testing import logs

test_part.__test__ = False  # type: ignore[attr-defined]  # a function of ours, whatever its name
COMMIT = "0123456789abcdef0123456789abcdef01234567"
GOLD = """diff --git a/shop/price.py b/shop/price.py
--- a/shop/price.py
+++ b/shop/price.py
@@ -1 +1 @@
-OFF = 0
+OFF = 25
"""
TESTS = """diff --git a/tests/test_price.py b/tests/test_price.py
--- a/tests/test_price.py
+++ b/tests/test_price.py
@@ -1 +1,2 @@
 import shop
+def test_off(): assert shop.OFF == 25
diff --git a/tests/old.py b/tests/old.py
deleted file mode 100644
--- a/tests/old.py
+++ /dev/null
@@ -1 +0,0 @@
-rename from tests/test_price.py
diff --git a/tests/a.txt b/tests/b.txt
similarity index 100%
rename from tests/a.txt
rename to tests/b.txt
diff --git "a/tests/\\303\\251.bin" "b/tests/\\303\\251.bin"
new file mode 100644
index 0000000000000000000000000000000000000000..1234567890123456789012345678901234567890
GIT binary patch
literal 1
Ic${MZ00962

literal 0
HcmV?d00001

"""
CLASSIC: Mapping[str, Any] = {
    "repo": "ada/shop",
    "instance_id": "ada__shop-12",
    "base_commit": COMMIT,
    "patch": GOLD,
    "test_patch": TESTS,
    "problem_statement": "25 percent off is nothing off.",
    "hints_text": "",
    "created_at": "2026-01-01T00:00:00Z",
    "version": "1.7",
    "FAIL_TO_PASS": json.dumps(["test_off", "test_odd[a b - c]"]),
    "PASS_TO_PASS": json.dumps(["test_on", "test_off"]),
    "environment_setup_commit": COMMIT,
}
SCRIPT = f"""#!/bin/bash
set -uxo pipefail
export GREETING=hello
echo noise of the set-up, PASSED tests/test_price.py::forged
cat > /dev/stderr <<'EOF'
more noise, {{curly}} ${{TOO}}
EOF
: '{START}'
echo "PASSED $GREETING"
exit_with() {{ return 3; }}
exit_with
: '{END}'
git checkout {COMMIT} tests/test_price.py
"""
NEW: Mapping[str, Any] = {
    **CLASSIC,
    "FAIL_TO_PASS": ["test_off"],
    "PASS_TO_PASS": [],
    "image": "hub/sweb.eval.ada_1776_shop-12:latest",
    "eval_script": SCRIPT,
    "log_parser": "parse_log_pytest",
    "eval_type": "pass_and_fail",
    "split": "dev",
}
RECIPE = Recipe(
    repo="ada/shop",
    versions=("1.7",),
    environment=Environment(base="bookworm", test_command="python3 -m pytest {test_files}"),
)


@pytest.fixture
def mirrors(tmp_path: Path) -> dict[str, Path]:
    """A local repository by name; reading rows does not open it."""
    return {"ada/shop": tmp_path / "shop.git"}


@pytest.fixture(autouse=True)
def parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of swebench's parsers, whether or not it is installed."""
    known: dict[str, object] = {"parse_log_pytest": len}
    monkeypatch.setattr(logs, "_registry", lambda: known)


def write(folder: Path, rows: list[Any], kind: str = "jsonl") -> Path:
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_a_classic_row_goes_by_its_recipe(
    kind: str, tmp_path: Path, mirrors: dict[str, Path]
) -> None:
    path = write(tmp_path, [dict(CLASSIC)], kind)
    (task,), reasons = read_task_file(path, recipes=[RECIPE], mirrors=mirrors)
    assert not reasons
    assert task == Task(
        id="ada__shop-12",
        statement="25 percent off is nothing off.",
        base_commit=COMMIT,
        gold_patch=GOLD,
        fail_to_pass=("test_off", "test_odd[a b - c]"),
        pass_to_pass=("test_on",),
        test_files=("tests/b.txt", "tests/test_price.py", "tests/é.bin"),
        test_patch=TESTS,
        repository=str((tmp_path / "shop.git").resolve()),
        environment=RECIPE.environment,
        repo="ada/shop",
        version="1.7",
        split="test",
        provenance={"source": "swe-bench"},
    )


def test_tasks_come_back_from_our_own_file(tmp_path: Path, mirrors: dict[str, Path]) -> None:
    path = write(tmp_path, [dict(NEW), {**CLASSIC, "instance_id": "b"}])
    tasks, _ = read_task_file(path, recipes=[], mirrors=mirrors)
    tasks += read_task_file(path, recipes=[RECIPE], mirrors=mirrors)[0][1:]
    dump_tasks(tasks, tmp_path / "own.jsonl")
    assert load_tasks(tmp_path / "own.jsonl") == tasks
    assert read_task_file(tmp_path / "own.jsonl", recipes=[], mirrors={}) == (tasks, {})


def test_a_row_of_5_runs_its_own_script_where_there_is_no_recipe(
    tmp_path: Path, mirrors: dict[str, Path]
) -> None:
    path = write(tmp_path, [dict(NEW)], "json")
    (task,), reasons = read_task_file(path, recipes=[], mirrors=mirrors)
    assert not reasons
    environment = task.environment
    assert environment is not None
    assert task.image == environment.base == "hub/sweb.eval.ada_1776_shop-12:latest"
    assert environment.command.kind == "log:parse_log_pytest"
    assert environment.workdir == "/testbed"
    assert task.split == "dev"
    # as the shell of a sandbox gets it
    done = subprocess.run(
        ["sh", "-c", environment.test_command],
        env={"PATH": "/usr/bin:/bin", **environment.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("PASSED hello\n", 3)
    assert "noise" not in done.stderr


def test_a_recipe_is_worth_more_than_a_log(tmp_path: Path, mirrors: dict[str, Path]) -> None:
    path = write(tmp_path, [dict(NEW)])
    (task,), _ = read_task_file(path, recipes=[RECIPE], mirrors=mirrors)
    assert task.environment == RECIPE.environment
    assert task.image == NEW["image"]


def test_a_recipe_names_the_ready_image(tmp_path: Path, mirrors: dict[str, Path]) -> None:
    ready = replace(RECIPE, image="hub/eval.{id}")
    path = write(tmp_path, [dict(CLASSIC)])
    (task,), _ = read_task_file(path, recipes=[ready], mirrors=mirrors)
    assert task.image == "hub/eval.ada_1776_shop-12"


BAD = [
    ({"FAIL_TO_PASS": "[]"}, "no FAIL_TO_PASS: nothing would tell"),
    ({"FAIL_TO_PASS": None}, "no FAIL_TO_PASS"),
    ({"FAIL_TO_PASS": "[test_off"}, "FAIL_TO_PASS is not JSON"),
    ({"FAIL_TO_PASS": [1]}, "FAIL_TO_PASS is no list of texts"),
    ({"PASS_TO_PASS": {"a": 1}}, "PASS_TO_PASS is no list of texts"),
    ({"version": "2.0"}, "no recipe for ada/shop 2.0: write one"),
    ({"version": None}, "no recipe for ada/shop (no version)"),
    ({"repo": "ada/ship"}, "no mirror of ada/ship: clone it, and give --mirror ada/ship=PATH"),
    ({"repo": None}, "no repo in it"),
    ({"problem_statement": " "}, "no problem_statement in it"),
    ({"patch": ""}, "no patch in it"),
    ({"patch": "what?"}, "gold_patch is no git diff"),
    ({"test_patch": "what?"}, "test_patch is no git diff"),
    ({"test_patch": TESTS.replace("tests/old.py", "../old.py")}, "test_patch is refused: path"),
    ({"base_commit": "0123"}, "base_commit '0123' is no full commit"),
    ({"image_assets": {"test_patch": [{"path": "a.png"}]}}, "its tests need files that no diff"),
]
BAD_NEW = [
    ({"eval_type": "fail_only"}, "eval_type fail_only: it counts tests that did not run"),
    ({"eval_script": "pytest"}, "eval_script has no '>>>>> Start Test Output' before"),
    ({"eval_script": f"{END}\n{START}"}, "eval_script has no '>>>>> Start Test Output' before"),
    ({"eval_script": SCRIPT + " " * SCRIPT_LIMIT + f"\n{START}\n"}, None),
    ({"eval_script": f"#{'x' * SCRIPT_LIMIT}\n{SCRIPT}"}, f"eval_script is over {SCRIPT_LIMIT}"),
    ({"log_parser": "parse_log_pytes"}, "no log parser 'parse_log_pytes' in swebench: did you"),
    ({"log_parser": "parse_log_jekyll"}, "log parser parse_log_jekyll needs to know the task"),
    ({"log_parser": ""}, "no recipe for ada/shop 1.7"),
    ({"image_assets": '{"test_patch": []}'}, None),
]


@pytest.mark.parametrize(("change", "reason"), BAD)
def test_a_classic_row_that_can_t_be_used(
    change: dict[str, Any], reason: str, tmp_path: Path, mirrors: dict[str, Path]
) -> None:
    rows = [dict(CLASSIC), {**CLASSIC, "instance_id": "bad", **change}]
    tasks, reasons = read_task_file(write(tmp_path, rows), recipes=[RECIPE], mirrors=mirrors)
    assert [task.id for task in tasks] == ["ada__shop-12"]
    assert list(reasons) == ["bad"]
    assert reasons["bad"].startswith(reason) and "\n" not in reasons["bad"]


@pytest.mark.parametrize(("change", "reason"), BAD_NEW)
def test_a_row_of_5_that_can_t_be_used(
    change: dict[str, Any], reason: str | None, tmp_path: Path, mirrors: dict[str, Path]
) -> None:
    rows = [{**NEW, **change}]
    tasks, reasons = read_task_file(write(tmp_path, rows), recipes=[], mirrors=mirrors)
    assert len(tasks) + len(reasons) == 1
    if reason is None:
        assert not reasons
    else:
        assert reasons["ada__shop-12"].startswith(reason)


def test_rows_without_a_name_go_by_their_line(tmp_path: Path, mirrors: dict[str, Path]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{json.dumps(CLASSIC)}\n\n{{"instance_id": \n[1]\n{{"repo": "ada/shop"}}\n')
    tasks, reasons = read_task_file(path, recipes=[RECIPE], mirrors=mirrors)
    assert len(tasks) == 1
    assert reasons == {
        f"{path}:3": "not JSON (Expecting value at column 17): write one row a line",
        f"{path}:4": "not a JSON object: write one a row",
        f"{path}:5": "no instance_id: add it",
    }


def test_a_row_with_an_odd_name_is_named(tmp_path: Path, mirrors: dict[str, Path]) -> None:
    path = write(tmp_path, [dict(CLASSIC), {**CLASSIC, "instance_id": "../x"}])
    _, reasons = read_task_file(path, recipes=[RECIPE], mirrors=mirrors)
    assert reasons["../x"].startswith("id '../x' is no plain name")


@pytest.mark.parametrize("bad", [False, True])
def test_the_same_id_twice(bad: bool, tmp_path: Path, mirrors: dict[str, Path]) -> None:
    rows = [{**CLASSIC, "FAIL_TO_PASS": "[]"} if bad else dict(CLASSIC), dict(CLASSIC)]
    path = write(tmp_path, rows)
    with pytest.raises(TaskError, match=r"rows\.jsonl:2: ada__shop-12 is there twice"):
        read_task_file(path, recipes=[RECIPE], mirrors=mirrors)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", None, "No such file or directory: give JSON Lines"),
        ("bytes.json", b"\xff", "not UTF-8: give JSON Lines"),
        ("empty.jsonl", b"\n", ":1: no rows in it"),
        ("list.json", b"[]", ":1: no rows in it"),
        ("torn.json", b'[{"instance_id": 1},\n{', ":2: not JSON"),
        ("rows.parquet", b"PAR1", ": not parquet ("),
        ("none.parquet", None, ": not parquet ("),
    ],
)
def test_files_that_can_t_be_read(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TaskError) as caught:
        read_task_file(path, recipes=[], mirrors={})
    assert str(caught.value).startswith(str(path)) and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(TaskError, match=r"pip install 'patchgym\[swebench\]'"):
        read_task_file(tmp_path / "rows.parquet", recipes=[], mirrors={})


@pytest.mark.parametrize("name", ["own.jsonl", "own.parquet"])
def test_our_own_file_passes_through(name: str, tmp_path: Path) -> None:
    tasks = bundled_tasks("heldout")[:2]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    dump_tasks(tasks, tmp_path / name)
    assert read_task_file(tmp_path / name, recipes=[], mirrors={}) == (tasks, {})


def test_errors_in_our_own_file_name_the_place(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"id": "a", "statment": "b"}\n')
    with pytest.raises(TaskError, match=r"own\.jsonl:1: unknown key statment: did you mean"):
        read_task_file(tmp_path / "own.jsonl", recipes=[], mirrors={})


def test_a_path_that_leaves_the_repository_is_refused() -> None:
    with pytest.raises(PatchError):
        kept_paths(b"diff --git a/.git/config b/.git/config\nnew file mode 100644\n")
    assert kept_paths(b"no diff at all\n") == ()


def test_kept_paths_are_those_that_git_leaves(tmp_path: Path) -> None:
    """Git itself as the judge, on a diff with every kind of change."""

    def git(*words: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
        command = ["git", "-C", str(tmp_path), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    texts = {name: f"{name}\n" * 9 for name in ("stays", "goes", "moves", "changes", "a b", "é")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    git("add", "-A")
    git("commit", "-qm", "one")
    (tmp_path / "goes").unlink()
    (tmp_path / "moves").rename(tmp_path / "moved")
    (tmp_path / "changes").write_text("diff --git a/x b/x\ndeleted file mode 100644\n")
    (tmp_path / "a b").chmod(0o755)
    (tmp_path / "é").write_bytes(b"\0\1\2")
    (tmp_path / "new").write_text("rename from stays\n")
    git("add", "-A")
    diff = git("diff", "--cached", "--binary", "--find-renames")
    assert "rename from moves" in diff and "GIT binary patch" in diff
    assert kept_paths(diff.encode()) == ("a b", "changes", "moved", "new", "é")


@given(
    st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5, unique=True),
    st.booleans(),
)
def test_ids_are_kept_to_the_letter(ids: list[str], as_text: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        row = {**CLASSIC, "FAIL_TO_PASS": json.dumps(ids) if as_text else ids, "PASS_TO_PASS": []}
        path = write(Path(folder), [row])
        (task,), _ = read_task_file(path, recipes=[RECIPE], mirrors={"ada/shop": Path(folder)})
    assert task.fail_to_pass == tuple(ids)


@given(st.lists(st.dictionaries(st.text(), st.none() | st.text() | st.integers()), min_size=1))
def test_rows_come_back_whatever_is_in_them(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("jsonl", "json"):
            found = read_rows(write(Path(folder), rows, kind))
            assert [row.values for row in found] == rows


def test_the_script_stays_out_of_the_command(tmp_path: Path, mirrors: dict[str, Path]) -> None:
    """Its braces are no placeholders of ours."""
    (task,), _ = read_task_file(write(tmp_path, [dict(NEW)]), recipes=[], mirrors=mirrors)
    assert task.environment is not None
    assert task.environment.test_command == f'bash -c "${SCRIPT_VARIABLE}"'
    assert "${TOO}" in task.environment.variables[SCRIPT_VARIABLE]
