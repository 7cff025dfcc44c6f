"""Plain folders: task.toml, repo/, patches as files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from shop_rows import NEW_TESTS, OLD_TESTS, RECIPE, STATEMENT, WRONG, Shop, checks

from patchgym.datasets.adapters import Imported, import_tasks
from patchgym.datasets.environment import Environment
from patchgym.datasets.repository import materialize
from patchgym.datasets.task import TaskError
from patchgym.datasets.validate import validate
from patchgym.sandbox import Pool, SandboxSpec

TOML = """
id = "shop/discount"
fail_to_pass = ["tests/test_price.py::test_quarter"]
pass_to_pass = ["tests/test_price.py::test_nothing"]
split = "heldout"
difficulty = 0.25

[provenance]
by = "hand"
"""


@pytest.fixture
def folder(shop: Shop, tmp_path: Path) -> Path:
    """With plain files for its repository."""
    folder = tmp_path / "tasks" / "discount"
    for name in ("shop", "tests"):
        (folder / "repo" / name).mkdir(parents=True)
    (folder / "repo/conftest.py").write_text("")
    (folder / "repo/shop/price.py").write_text(WRONG)
    (folder / "repo/tests/test_price.py").write_text(OLD_TESTS)
    (folder / "task.toml").write_text(TOML)
    (folder / "statement.md").write_text(STATEMENT)
    (folder / "gold.patch").write_text(shop.gold)
    (folder / "test.patch").write_text(shop.tests)
    return folder


def read(folder: Path) -> Imported:
    return import_tasks("auto", str(folder), recipes=[RECIPE], mirrors={})


def why(folder: Path) -> str:
    """Why the one task of a folder can't be used."""
    found = read(folder)
    assert not found.tasks
    (text,) = found.reasons.values()
    assert "\n" not in text
    return text


def change(folder: Path, old: str, new: str) -> None:
    path = folder / "task.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_plain_files(folder: Path, shop: Shop, tmp_path: Path) -> None:
    (task,) = read(folder).tasks
    assert (task.id, task.statement, task.split) == ("shop/discount", STATEMENT, "heldout")
    assert (task.difficulty, task.repository) == (0.25, None)
    assert task.test_files == ("tests/test_price.py",)
    assert (task.gold_patch, task.test_patch) == (shop.gold, shop.tests)
    assert task.provenance == {"source": "folder", "by": "hand"}
    made = materialize(task, tmp_path / "made")
    assert (made / "shop/price.py").read_text() == WRONG


def test_a_git_repository(folder: Path, shop: Shop, tmp_path: Path) -> None:
    shutil.rmtree(folder / "repo")
    shutil.copytree(shop.path, folder / "repo")
    change(folder, "split", f'base_commit = "{shop.base}"\nsplit')
    (task,) = read(folder).tasks
    assert (task.files, task.base_commit) == (None, shop.base)
    assert task.repository == str(folder / "repo")
    checks(task, tmp_path / "work")
    change(folder, shop.base, shop.base[:12])
    assert read(folder).tasks[0].base_commit == shop.base


def test_an_environment_of_its_own_or_of_a_recipe(folder: Path) -> None:
    change(folder, "split", 'repo = "ada/shop"\nsplit')
    assert read(folder).tasks[0].environment == RECIPE.environment
    with (folder / "task.toml").open("a") as file:
        file.write('[environment]\nbase = "bullseye"\nsetup = ["true"]\n')
    assert read(folder).tasks[0].environment == Environment(base="bullseye", setup=("true",))


def test_folders_of_folders_and_the_others_go_on(folder: Path) -> None:
    bad = folder.parent / "bad"
    bad.mkdir()
    (bad / "task.toml").write_text("id = ")
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    change(other, 'id = "shop/discount"', "")
    found = read(folder.parent)
    assert [task.id for task in found.tasks] == ["shop/discount", "other"]
    assert list(found.reasons) == [f"{bad}/task.toml:1"]
    assert found.reasons[f"{bad}/task.toml:1"].startswith("not TOML")
    assert found.formats == {"folder": 2, "unknown": 1}


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no task.toml in it, nor in a folder below: write one"):
        read(tmp_path)


def test_what_can_t_be_used_is_named(folder: Path) -> None:
    change(folder, "split", "splitt")
    assert why(folder) == "unknown key splitt: did you mean split?"
    change(folder, "splitt", "split")
    change(folder, "0.25", "2.5")
    assert why(folder) == "difficulty 2.5 is no share: give 0 to 1"
    change(folder, "2.5", '"hard"')
    assert why(folder).startswith("difficulty: input should be a valid number")
    change(folder, '"hard"', "0.5")
    (folder / "repo/logo.png").write_bytes(b"\xff\xfe")
    assert why(folder) == "repo/logo.png is not UTF-8: make repo/ a git repository"
    (folder / "repo/logo.png").unlink()
    (folder / "repo/link").symlink_to("conftest.py")
    assert why(folder) == "repo/link is a link: make repo/ a git repository"
    (folder / "repo/link").unlink()
    change(folder, "split", f'base_commit = "{"0" * 40}"\nsplit')
    assert why(folder).startswith("its files make commit ")
    change(folder, f'base_commit = "{"0" * 40}"\n', 'gold_patch = "../x.patch"\n')
    assert why(folder).startswith("../x.patch is outside of its folder")
    change(folder, "../x.patch", "fix.patch")
    assert why(folder) == "no fix.patch beside task.toml: write it"
    shutil.rmtree(folder / "repo")
    assert why(folder).startswith("no folder repo/ beside task.toml")


@pytest.mark.docker
async def test_it_is_valid(folder: Path, docker_image: str) -> None:
    assert NEW_TESTS.startswith(OLD_TESTS)
    (task,) = read(folder).tasks
    async with Pool(SandboxSpec(image=docker_image, disk_mib=32), size=1) as pool:
        found = await validate(task, pool)
    assert (found.status, found.reason) == ("valid", "")
