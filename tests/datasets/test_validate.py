"""Validation in real sandboxes: good tasks pass, each sort of bad one is named."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from patchgym.datasets.repository import commit_files
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.datasets.trial import TrialConfig
from patchgym.datasets.validate import Validation, validate, validate_all
from patchgym.sandbox import Pool, SandboxSpec

pytestmark = pytest.mark.docker

CODE = "def f():\n    return 1\n"
PATCH = """diff --git a/f.py b/f.py
--- a/f.py
+++ b/f.py
@@ -1,2 +1,2 @@
 def f():
-    return 1
+    return 2
"""
TEST_PATCH = """diff --git a/test_f.py b/test_f.py
--- a/test_f.py
+++ b/test_f.py
@@ -3,2 +3,2 @@
 def test_two():
-    assert f() == 2
+    assert f() == 3
"""


@pytest.fixture
async def pool(docker_image: str) -> AsyncIterator[Pool]:
    async with Pool(SandboxSpec(image=docker_image, disk_mib=32), size=2) as pool:
        yield pool


def make(folder: Path, tests: str, **changes: object) -> Task:
    """A task about f(), in a repository of its own, whose tests are that text."""
    folder.mkdir()
    files = {"f.py": CODE, "test_f.py": f"from f import f\n\n{tests}"}
    with commit_files(files, folder) as repo:
        commit = repo.head.commit.hexsha
    task = Task(
        id="own/f",
        statement="f is wrong",
        base_commit=commit,
        gold_patch=PATCH,
        fail_to_pass=("test_f.py::test_two",),
        test_files=("test_f.py",),
        repository=str(folder),
    )
    return replace(task, **changes)  # type: ignore[arg-type]


TWO = "def test_two():\n    assert f() == 2\n"


async def test_bundled_tasks_are_valid(pool: Pool, tmp_path: Path) -> None:
    answers: dict[str, Validation] = {}
    tasks = (*bundled_tasks("train")[:2], *bundled_tasks("heldout")[:2])
    root = tmp_path / "repositories"
    config = TrialConfig(repositories=root)
    first = await validate(tasks[0], pool, config=config, repeats=2, shuffled=True)
    assert (first.status, first.task, first.symptoms) == ("valid", tasks[0], ())
    await validate_all(tasks, pool, lambda task, v: answers.update({task.id: v}), jobs=2)
    assert {name: answer.status for name, answer in answers.items()} == {
        task.id: "valid" for task in tasks
    }


BAD: list[tuple[str, dict[str, object], str]] = [
    (
        "def test_two():\n    assert f() > 0\n",
        {},
        "own/f: FAIL_TO_PASS test_f.py::test_two already passes on the base commit: take it out",
    ),
    (
        TWO + "\ndef test_three():\n    assert f() == 3\n",
        {"pass_to_pass": ("test_f.py::test_three",)},
        "own/f: PASS_TO_PASS test_f.py::test_three is failed on the base commit (",
    ),
    (
        "def test_two():\n    assert f() == 3\n",
        {},
        "own/f: test_f.py::test_two is failed with the gold patch (",
    ),
    (
        TWO,
        {"fail_to_pass": ("test_f.py::test_tow",)},
        "own/f: test_f.py::test_tow is not_run with the gold patch: correct its name",
    ),
    (
        "import pytest\n\n@pytest.mark.skipif(f() == 1, reason='no')\n" + TWO,
        {},
        "own/f: FAIL_TO_PASS test_f.py::test_two is skipped on the base commit",
    ),
    (
        TWO,
        {"gold_patch": PATCH.replace("return 1", "return 7")},
        "own/f: the gold patch does not apply (",
    ),
    (
        TWO,
        {"gold_patch": PATCH.replace("return 2", "return 3") + TEST_PATCH},
        "own/f: test_f.py::test_two is failed with the gold patch (",
    ),
]


@pytest.mark.parametrize(("tests", "changes", "reason"), BAD, ids=range(len(BAD)))
async def test_a_bad_task_is_named(
    tests: str, changes: dict[str, object], reason: str, pool: Pool, tmp_path: Path
) -> None:
    answer = await validate(make(tmp_path / "f", tests, **changes), pool)
    assert not answer.ok
    assert answer.reason.startswith(reason), answer.reason
    assert "\n" not in answer.reason


async def test_a_test_that_never_ends_is_named(pool: Pool, tmp_path: Path) -> None:
    tests = "def test_two():\n    while f() == 2:\n        pass\n    assert False\n"
    answer = await validate(make(tmp_path / "f", tests), pool, config=TrialConfig(timeout=8))
    assert answer.reason.startswith("own/f: test_f.py::test_two is timeout with the gold patch (")


async def test_a_missing_test_file_is_named(pool: Pool, tmp_path: Path) -> None:
    task = make(
        tmp_path / "f", TWO, fail_to_pass=("t/test_g.py::test_g",), test_files=("t/test_g.py",)
    )
    answer = await validate(task, pool)
    assert answer.status == "invalid"
    assert answer.reason.startswith("own/f: test file t/test_g.py is not in base_commit")


async def test_sandboxes_that_fail_say_nothing_of_the_task(pool: Pool, tmp_path: Path) -> None:
    task = make(tmp_path / "f", TWO, image="patchgym/no-such-image:none")
    answer = await validate(task, pool)
    assert answer.status == "unknown"
    assert "no-such-image" in answer.reason


# Passes every other time, by chance: every sandbox is new, so it can't count its runs.
CHANCE = """import os


def test_chance():
    assert os.urandom(1)[0] % 2
"""


async def test_flaky_tests_leave_the_lists_with_their_rate(pool: Pool, tmp_path: Path) -> None:
    tests = f"{TWO}\n\n{CHANCE}"
    listed = {"pass_to_pass": ("test_f.py::test_chance",)}
    answer = await validate(make(tmp_path / "f", tests, **listed), pool, repeats=12)
    assert answer.ok, answer.reason
    assert answer.task.pass_to_pass == ()
    flake = answer.flaky["test_f.py::test_chance"]
    assert (flake.runs, answer.task.flaky) == (12, {"test_f.py::test_chance": flake.rate})
    alone = {"fail_to_pass": ("test_f.py::test_chance",)}
    lost = await validate(make(tmp_path / "g", tests, **alone), pool, repeats=12)
    assert "no FAIL_TO_PASS is left without the flaky" in lost.reason


ODD = """import socket
import time

seen = []


def test_two():
    seen.append(1)
    assert f() == 2


def test_after_two():
    assert seen


def test_out():
    socket.create_connection(("example.invalid", 80), timeout=3)


def test_hangs():
    time.sleep(60)
"""


async def test_odd_tests_are_named(pool: Pool, tmp_path: Path) -> None:
    names = ("test_after_two", "test_out", "test_hangs")
    listed = {"pass_to_pass": tuple(f"test_f.py::{name}" for name in names[:1])}
    ordered = await validate(make(tmp_path / "f", ODD, **listed), pool, shuffled=True)
    assert ordered.ok, ordered.reason
    found = {(each.kind, each.test.partition("::")[2]) for each in ordered.symptoms}
    assert found <= {("order", "test_after_two")}
    for name, kind in zip(names[1:], ("network", "hangs"), strict=True):
        task = make(tmp_path / name, ODD, fail_to_pass=(f"test_f.py::{name}",))
        answer = await validate(task, pool, config=TrialConfig(per_test_timeout=2))
        assert not answer.ok
        assert [each.kind for each in answer.symptoms] == [kind]


async def test_a_statement_that_quotes_the_fix_is_named(pool: Pool, tmp_path: Path) -> None:
    fix = PATCH.replace("return 2", "return 1 + int(True)")
    task = make(tmp_path / "f", TWO, gold_patch=fix, statement="Write `return 1 + int( True )`!")
    answer = await validate(task, pool)
    assert (answer.ok, [each.kind for each in answer.symptoms]) == (True, ["leak"])
    assert "return 1 + int(True)" in answer.symptoms[0].detail
