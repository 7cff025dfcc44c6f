"""Tasks as values: what is refused and in which words, files of tasks, the bundled ones."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from patchgym.datasets.task import Task, TaskError, bundled_tasks, dump_tasks, load_tasks

Row = dict[str, object]


@pytest.fixture
def task() -> Task:
    return bundled_tasks("train")[0]


@pytest.fixture
def write(task: Task, tmp_path: Path) -> Callable[[Callable[[Row], object]], Path]:
    """Write the task's row after a change to it."""

    def write(change: Callable[[Row], object]) -> Path:
        path = tmp_path / "tasks.jsonl"
        dump_tasks([task], path)
        row = json.loads(path.read_text())
        change(row)
        path.write_text(json.dumps(row) + "\n")
        return path

    return write


def test_round_trip(tmp_path: Path) -> None:
    tasks = bundled_tasks("train") + bundled_tasks("heldout")
    odd = replace(tasks[0], id="odd", statement='\u2028 \u00e9 \\ " \n', focus=None, image="x")
    dump_tasks((*tasks, odd), tmp_path / "tasks.jsonl")
    assert load_tasks(tmp_path / "tasks.jsonl") == (*tasks, odd)
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_a_failed_dump_leaves_the_old_file(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    dump_tasks([task], path)
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        dump_tasks([replace(task, statement="\ud800")], path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_content_ignores_the_name_and_the_place(task: Task) -> None:
    assert replace(task, id="other", split="heldout").content == task.content
    assert replace(task, statement="Mend it.").content != task.content


def test_a_repository_is_relative_to_the_file(
    write: Callable[[Callable[[Row], object]], Path], tmp_path: Path
) -> None:
    path = write(lambda row: row.update(files=None, repository="repos/app"))
    assert load_tasks(path)[0].repository == str(tmp_path / "repos/app")


CHANGES: list[tuple[Callable[[Row], object], str]] = [
    (lambda row: row.update(statment="x"), "unknown key statment: did you mean statement?"),
    (
        lambda row: row.update(focus={"path": "a.py", "functoin": "a"}),
        "unknown key focus.functoin: did you mean focus.function?",
    ),
    (lambda row: row.pop("base_commit"), "no key base_commit: add it"),
    (
        lambda row: row.update(fail_to_pass="test_a"),
        "fail_to_pass has the wrong type: input should be a valid array, not str",
    ),
    (
        lambda row: row.update(pass_to_pass=[1]),
        "pass_to_pass.0 has the wrong type: input should be a valid string, not int",
    ),
    (lambda row: row.update(base_commit="HEAD"), "base_commit 'HEAD' is no full commit: give 40"),
    (lambda row: row.update(files=None), "give files, or a repository, or an image that holds one"),
    (lambda row: row.update(repository="x"), "give exactly one of files and repository"),
    (lambda row: row.update(gold_patch="+ x"), "gold_patch is no git diff: paste the whole"),
    (lambda row: row.update(fail_to_pass=[]), "fail_to_pass is empty: name a test"),
    (lambda row: row.update(fail_to_pass=["test_1"]), "test test_1 is in no test file: write"),
    (lambda row: row.update(pass_to_pass=row["fail_to_pass"]), "is named twice: remove one"),
    (lambda row: row.update(id="../x"), "id '../x' is no plain name: use letters"),
    (lambda row: row.update(statement=" "), "the statement is empty: say what is wrong"),
    (
        lambda row: row.update(focus={"path": "../a.py", "function": "a"}),
        "'../a.py' leaves the repository: use a path relative to its root",
    ),
    (
        lambda row: row.update(focus={"path": ".git/config", "function": "a"}),
        "'.git/config' leaves the repository",
    ),
]


@pytest.mark.parametrize(("change", "message"), CHANGES, ids=[text for _, text in CHANGES])
def test_a_bad_row_is_one_line_with_its_place(
    change: Callable[[Row], object],
    message: str,
    write: Callable[[Callable[[Row], object]], Path],
) -> None:
    path = write(change)
    with pytest.raises(TaskError) as caught:
        load_tasks(path)
    assert str(caught.value).startswith(f"{path}:1: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{path}: no tasks in it: write one JSON object a line"),
        ("\n{]\n", "{path}:2: not JSON (Expecting property name enclosed in double quotes at"),
        ("[]\n", "{path}:1: not a JSON object: write one task a line"),
    ],
)
def test_a_bad_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text)
    with pytest.raises(TaskError) as caught:
        load_tasks(path)
    assert str(caught.value).startswith(message.format(path=path))


def test_a_missing_and_a_binary_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    with pytest.raises(TaskError, match="No such file or directory: give a JSON Lines file"):
        load_tasks(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="not UTF-8: give a JSON Lines file"):
        load_tasks(path)


def test_an_id_comes_once(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    dump_tasks([task, task], path)
    with pytest.raises(TaskError, match=rf"tasks.jsonl:2: {task.id} is there twice: give it"):
        load_tasks(path)


def test_importing_is_light() -> None:
    code = (
        "import sys, patchgym.datasets.task, patchgym.datasets.repository\n"
        "assert not {'pydantic', 'git', 'docker', 'jax'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
