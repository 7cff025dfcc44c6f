"""`patchgym tasks inject`: a file of tasks, a report, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from small_library import FILES

from patchgym.datasets.repository import commit_files
from patchgym.datasets.task import load_tasks

PATCHGYM = str(Path(sys.executable).with_name("patchgym"))


def patchgym(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `patchgym tasks inject` there."""
    return subprocess.run(
        [PATCHGYM, "tasks", "inject", *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a library's repository in it."""
    (tmp_path / "shop").mkdir()
    commit_files(FILES, tmp_path / "shop").close()
    return tmp_path


@pytest.mark.docker
def test_tasks_and_a_report_come_out(shop: Path) -> None:
    words = ["shop", "--out", "tasks.jsonl", "--count", "2", "--jobs", "2", "--json"]
    words += ["--kinds", "comparison,boundary,off-by-one"]
    done = patchgym(shop, *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kept"] == 2
    assert set(report["kinds"]) <= {"comparison", "boundary", "off-by-one", "combined"}
    tasks = load_tasks(shop / "tasks.jsonl")
    assert len(tasks) == 2
    assert "tasks.jsonl.repos/source.git" in (shop / "tasks.jsonl").read_text()
    assert str(shop) not in (shop / "tasks.jsonl").read_text()


@pytest.mark.docker
def test_too_few_is_exit_code_1_and_says_why(shop: Path) -> None:
    words = ["shop", "--out", "tasks.jsonl", "--count", "9", "--kinds", "mutable-default"]
    done = patchgym(shop, *words, "--jobs", "1", "--combine", "0")
    assert done.returncode == 1, done.stderr
    assert "0 tasks instead of 9: all 1 places that tests run were tried" in done.stderr
    assert "mutable-default" in done.stdout


WRONG = [
    (["nowhere", "--out", "t.jsonl", "--count", "1"], "nowhere: no such file or folder"),
    (["shop", "--out", "no/t.jsonl", "--count", "1"], "--out no/t.jsonl: name a file in a folder"),
    (
        ["shop", "--out", "t.jsonl", "--count", "1", "--kinds", "boundry"],
        "--kinds: no kind 'boundry'; did you mean boundary?",
    ),
    (
        ["shop", "--out", "t.jsonl", "--count", "1", "--commit", "v9"],
        "no commit v9 in it: name another",
    ),
]


@pytest.mark.parametrize(("words", "complaint"), WRONG)
def test_a_mistake_is_one_line(words: list[str], complaint: str, shop: Path) -> None:
    done = patchgym(shop, *words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
