"""No honest patch is flagged: hand-written ones, and the gold patch of every bundled task."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from calc_repository import FAILING, FIX, PASSING, TEST_FILES, changes
from honest_patches import HONEST, HonestPatch

from patchgym.datasets.repository import write_files
from patchgym.datasets.task import Task, bundled_tasks
from patchgym.rewards.tampering import TamperFinding, inspect_changes

# Files about which an honest patch may have something to be told.
TOUCHY = ("tests/", "pyproject.toml", "tox.ini", "Makefile", "web/price.test.js")


def found(patch: HonestPatch) -> tuple[TamperFinding, ...]:
    return inspect_changes(
        changes(patch.files_before, patch.files_after, {}),
        test_files=TEST_FILES,
        tests=FAILING + PASSING,
    )


@pytest.mark.parametrize("patch", HONEST, ids=lambda patch: patch.name)
def test_it_is_not_flagged(patch: HonestPatch) -> None:
    findings = found(patch)
    assert not [each for each in findings if each.disqualifies]
    assert all(each.path.startswith(TOUCHY) for each in findings)


def test_there_are_many() -> None:
    assert len({patch.name for patch in HONEST}) == len(HONEST) >= 40
    assert sum(FIX.encode() in patch.files_after["calc/arithmetic.py"] for patch in HONEST) >= 40


@pytest.mark.parametrize(
    "task", [*bundled_tasks("train"), *bundled_tasks("heldout")], ids=lambda task: task.id
)
def test_gold_has_no_finding(task: Task, tmp_path: Path) -> None:
    assert task.files is not None
    write_files(task.files, tmp_path)
    apply = ["git", "apply", "-"]
    subprocess.run(apply, cwd=tmp_path, input=task.gold_patch.encode(), check=True)
    before = {path: text.encode() for path, text in task.files.items()}
    after = {path: (tmp_path / path).read_bytes() for path in task.files}
    made = changes(before, after, {})
    assert made
    assert inspect_changes(made, test_files=task.test_files, tests=task.tests) == ()
